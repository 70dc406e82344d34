"""At what slots start, and what is left of it in them: no factor of the params scales that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from surgery_cli.optimizer.assumptions import ZERO_START, Assumption, usual_start
from surgery_cli.optimizer.detect.slot_hints import SlotHint
from surgery_cli.optimizer.knowledge.kinds import Field


class Beginning(NamedTuple):
    """What is known of the start of a field's slots; see ``Slot`` for ``fresh`` and ``left`` (its ``start``)."""

    fresh: float | None
    left: float | None
    stays: bool = False
    assumed: Assumption | None = None
    fresh_assumed: Assumption | None = None


def begin(fields: Sequence[Field | None], hint: SlotHint | None, *, is_named: bool) -> Beginning:
    """The start of slots that may be any of these fields.

    ``is_named``: the user named the factory, whose settings are then taken to be optax's own.
    """
    field = fields[0]
    said = hint.fresh if hint is not None else None
    known = field.fresh if field is not None else None
    rule = field.start if field is not None else None
    if rule is None:
        follows = field is None or bool(field.of_signal or field.fixed)
        found = Beginning(known if said is None else said, None if said and follows else 0.0)
        if said is None and len({f.fresh for f in fields if f is not None}) > 1:
            found = found._replace(fresh_assumed=ZERO_START)
    elif said is None and is_named:
        taken = usual_start(rule.setting, known or 0.0)
        left = left_of(known, stays=rule.stays)
        found = Beginning(known, left, rule.stays, taken if left is not None else None, taken)
    else:
        found = Beginning(said, left_of(said, stays=rule.stays), rule.stays)
    if hint is not None and hint.start is not None:
        found = found._replace(left=hint.start, assumed=None)
    return found


def left_of(fresh: float | None, *, stays: bool) -> float | None:
    """What is left of an initial value: all of it where it stays, nothing of nothing; else that is not known.

    >>> left_of(0.1, stays=True), left_of(0.0, stays=False), left_of(1.0, stays=False)
    (0.1, 0.0, None)
    """
    return fresh if stays or fresh == 0 else None
