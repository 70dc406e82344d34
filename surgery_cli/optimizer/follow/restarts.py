"""Slots that restart while a clock goes on that is none of a bias correction: what it counted is no longer in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from surgery_cli.draft.expression import LeafRef
from surgery_cli.draft.recipe import Draft, is_numeric
from surgery_cli.draft.slots import Slot
from surgery_cli.optimizer.follow.bias_correction import (
    BY_RESET,
    counted_at,
    has_seen,
    remedy_for,
)
from surgery_cli.optimizer.follow.clocks import has_restarted, set_to
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.advice import Text, worded

ACCUMULATION: Final = "accumulation"
"""The family of states whose slots gather what arrives until their clock says that it is enough."""

_SQUARES: Final = {
    "decay": "it sets the pace at which they fill, so that the next steps there are too large",
    "first_step": "only the optimizer's first step fills them at once, so that the next steps there are too large",
    "memory": "only the optimizer's first step begins a memory, so that the next steps there are too large",
    "cycle": "they are empty until their turn comes, and the steps there as large as a clip lets them be",
}
"""What comes of squares that restart while a clock goes on, by what it drives."""


class Emptied(msgspec.Struct, frozen=True, kw_only=True):
    """Slots that a plan restarts, or a clock that it sets, where the other goes on.

    ``clock`` is its path, ``counted`` where its count is stored, ``set_to`` the number to which the plan sets it, if it
    does, ``fresh`` the one at which it starts. ``goes_on`` if the slots go on. ``remedy`` avoids it.
    """

    clock: LeafPath
    counted: LeafRef
    drives: str
    slots: tuple[Slot, ...]
    fresh: int = 0
    set_to: int | None = None
    goes_on: bool = False
    remedy: str = ""

    def sentence(self, count: int) -> str | None:
        """What that does to the next steps once the clock has counted ``count``; None if nothing."""
        now = count if self.set_to is None else self.set_to
        if now == (count if self.goes_on else self.fresh):
            return None
        one, what = len(self.slots) == 1, "slot"
        if self.slots[0].optimizer == ACCUMULATION:
            what = "accumulator"
        they = f"{len(self.slots)} {what}{'' if one else 's'}"
        if what == "slot":
            they += " with squares"
        if self.goes_on:
            return (
                f"'{self.clock}' goes from {count:,} to {now:,} while {they} {'goes' if one else 'go'} on:"
                f" the next update there takes what {count:,} steps gave for that of {now:,}; leave it as it is"
            )
        start = f"{they} restart{'s' if one else ''} while '{self.clock}' is at {now:,}"
        if what == "slot":
            return worded("{}: {}; {}", start, _SQUARES[self.drives], self.remedy)
        small = f"counts {now:,} steps of nothing, and is that much too small"
        return Text(f"{start}: the next update there {small}; ", self.remedy)


def emptied(draft: Draft) -> list[Emptied]:
    """Where slots and a clock part that is none of a bias correction, by clock, in stored order."""
    found: dict[tuple[LeafPath, bool, bool], list[Slot]] = {}
    for slot, path, goes_on in _parted(draft):
        gathers = slot.optimizer == ACCUMULATION
        found.setdefault((path, gathers, goes_on), []).append(slot)
    return [
        Emptied(
            clock=clock.path,
            counted=counted_at(path, draft),
            drives=clock.drives,
            slots=tuple(slots),
            fresh=clock.fresh,
            set_to=set_to(draft.leaves[path]),
            goes_on=goes_on,
            remedy=_remedy(slots, draft, gathers=gathers),
        )
        for (path, gathers, goes_on), slots in found.items()
        if (clock := draft.clock_at(path)) is not None
    ]


def _parted(draft: Draft) -> Iterator[tuple[Slot, LeafPath, bool]]:
    """Every slot that a clock may part from, with that clock, and whether it is the slot that goes on."""
    every = {path for clocks in {slot.clocks for slot in draft.slots.values()} for path in clocks}
    found = {path: draft.clock_at(path) for path in every}
    clocks = {path: clock for path, clock in found.items() if clock and clock.drives in _SQUARES}
    for slot in draft.slots.values() if clocks else ():
        gathers = slot.optimizer == ACCUMULATION
        recipe = draft.leaves[slot.path]
        if slot.relation in ("hole", "one") or not is_numeric(recipe.spec):
            continue
        if not gathers and not slot.is_second_moment:
            continue
        goes_on = not has_restarted(slot, draft)
        for path in slot.clocks:
            if path not in clocks:
                continue
            fresh = clocks[path].fresh
            is_set = gathers and set_to(draft.leaves[path]) not in (None, fresh)
            if not goes_on or (is_set and has_seen(slot, path, draft)):
                yield slot, path, goes_on


def _remedy(slots: list[Slot], draft: Draft, *, gathers: bool) -> str:
    is_named = any(draft.leaves[slot.path].policy not in ("reset", "warm") for slot in slots)
    if gathers:
        return worded("a checkpoint in which it is at its start avoids it; {}", BY_RESET)
    return remedy_for(slots, is_named, draft)
