"""At what slots start, and what is left of it in them: no factor of the params scales that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from surgery_cli.draft.assumptions import ZERO_START, Assumption, usual_start
from surgery_cli.draft.effect import keeps_start
from surgery_cli.draft.placeholders import slots_line
from surgery_cli.draft.recipe import SOURCE, Output
from surgery_cli.draft.slots import Faded, Slot
from surgery_cli.optimizer.detect.slot_hints import SlotHint
from surgery_cli.optimizer.knowledge.kinds import Field
from surgery_cli.words.advice import InPlan, worded

_NOTHING: Final = 1e-30
"""What no moment is felt beside."""


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


def as_gathered(slot: Slot, recipe: Output) -> Slot:
    """The slot as it is after the edits so far: where they filled it anew, its count tells nothing of its start."""
    is_own = recipe.home is not None and recipe.home.source == SOURCE
    left = slot.start or 0.0
    if slot.faded is None or (is_own and all(keeps_start(e.effect, left) for e in recipe.edits)):
        return slot
    return faded_unknown(slot, "an edit before changed its values, while its count went on")


def faded_unknown(slot: Slot, because: str) -> Slot:
    """A slot of whose start it is not known what is left."""
    return msgspec.structs.replace(
        slot,
        start=None,
        fading=None,
        faded=None,
        unsure_because=f"what is left of its start is not known: {because}",
        settled_by=(
            worded("add {}, with S what is left of it", InPlan(slots_line(slot.node, start="S"))),
        ),
    )


def after_steps(slot: Slot, steps: int, dtype: str) -> Slot:
    """A slot with what is left of its start after so many steps of its clock; its start is known to fade.

    ``dtype`` is that of the slot: float32, in which the decay was measured, or float64.
    """
    fading = slot.fading
    if fading is None or slot.fresh is None:
        return slot
    left = slot.fresh * fading.decay**steps
    if abs(left) < _NOTHING:
        left = 0.0
    # errors of rounding are as good as random; in float64 the decay itself is another by half a unit
    share = 4 * math.sqrt(steps) + (steps / 2 if dtype == "float64" else 0)
    blur = abs(left) * 2.0**-24 * (4 + share)
    return msgspec.structs.replace(
        slot,
        start=left,
        faded=Faded(decay=fading.decay, steps=steps, blur=blur),
        known_by="word",
        unsure_because="",
        settled_by=(),
    )
