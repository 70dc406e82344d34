"""For which optimizer, and by which decays, it is told how large the next steps are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from surgery_cli.draft.expression import LeafRef
from surgery_cli.draft.recipe import Draft
from surgery_cli.draft.slots import Slot
from surgery_cli.optimizer.follow.decays import Decays, decays_of
from surgery_cli.optimizer.knowledge.adam_steps_of import UNDER_ANOTHER_COUNT, whose_steps

_USUAL: Final = Decays(0.9, 0.999)


class Sizes(msgspec.Struct, frozen=True):
    """How sizes of steps are told: under a ``condition``, if any, for ``decays``, or not at all.

    ``unknown`` says that they are not told; '' if they are.
    """

    condition: str = "if it is Adam, "
    unknown: str = ""
    decays: Decays = _USUAL


def sizes_under_another_count(
    slot: Slot, draft: Draft, number: Callable[[LeafRef], float | None]
) -> Sizes:
    """How the sizes of the steps made of a slot are told; ``number`` reads stored decays."""
    condition = whose_steps(slot.kinds, slot.factory, UNDER_ANOTHER_COUNT)
    decays = decays_of(slot, draft, number) if condition is not None else None
    if decays is None and condition and not slot.kinds:
        decays = _USUAL
    if condition is None or decays is None:
        return Sizes(unknown=not_worked_out(slot))
    return Sizes(condition, "", decays)


def not_worked_out(slot: Slot) -> str:
    """That nothing is told of the sizes of the steps made of a slot."""
    name = slot.factory or (slot.kinds[0] if len(slot.kinds) == 1 else "")
    of = f" for {name}" if name else ""
    return f"how large the next steps will be is not worked out{of}"
