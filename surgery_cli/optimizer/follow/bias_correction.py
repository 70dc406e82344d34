"""What comes of slots and the clock of their bias correction where one changes and the other goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from surgery_cli.draft.effect import Scales, Sets, keeps_size
from surgery_cli.draft.expression import LeafRef, is_computed, stored_in
from surgery_cli.draft.recipe import SOURCE, Draft, Output
from surgery_cli.draft.slots import Slot
from surgery_cli.optimizer.follow.adam_steps import NOTHING, Left, most_apart
from surgery_cli.optimizer.follow.clocks import filled_with, has_restarted, is_fresh, set_to
from surgery_cli.optimizer.follow.decays import Decays, decays_of
from surgery_cli.optimizer.follow.step_sizes import not_worked_out
from surgery_cli.optimizer.knowledge.adam_steps_of import (
    AFTER_A_RESTART,
    UNDER_ANOTHER_COUNT,
    whose_steps,
)
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.advice import Text, worded
from surgery_cli.words.quantities import counted

Number: TypeAlias = Callable[[LeafRef], float | None]

_BY_EDIT: Final = worded("{optimizer: warm} for the edit avoids it")
BY_RESET: Final = worded(
    "`reset-optimizer` of all its slots (no pattern) with {clocks: true} avoids it"
)
BY_LEAVING: Final = worded("leave them as they are; {}", BY_RESET)


class Restart(msgspec.Struct, frozen=True, kw_only=True):
    """Slots with squares that a plan resets or shrinks while the clock of their bias correction goes on.

    ``clock`` is its path, ``counted`` where its count is stored; ``set_to`` is what the plan sets it to, if it does.
    ``is_named``: an edit names these slots themselves. ``remedy`` avoids it, and ``decays`` are those of the moments,
    where they are known.
    """

    clock: LeafPath
    counted: LeafRef
    slots: tuple[Slot, ...]
    left: Left = NOTHING
    is_named: bool = False
    set_to: int | None = None
    remedy: str = _BY_EDIT
    decays: Decays | None = None

    def sentence(self, count: int) -> str | None:
        """What that does to the next steps once the clock has counted ``count``; None if next to nothing."""
        now = count if self.set_to is None else self.set_to
        start = f"{_slots(self.slots)} {self._what} while '{self.clock}' is at {now:,}:"
        if self.left.second is None:
            return f"{start} where they are smaller than before, the next steps there are too large"
        one = self.slots[0]
        condition = whose_steps(one.kinds, one.factory, AFTER_A_RESTART)
        if condition is None:
            return Text(f"{start} {not_worked_out(one)}; ", self.remedy)
        decays = self.decays
        if decays is None:
            return Text(
                f"{start} the next steps there can be several times too large; ", self.remedy
            )
        factor, step = most_apart(count, now, decays, self.left, max)
        if factor < 1.1:
            return None
        large = f"up to {factor:.1f} learning rates large (step {step}, with {decays.words})"
        return Text(f"{start} {condition}the next steps there are {large}; ", self.remedy)

    @property
    def _what(self) -> str:
        """What becomes of the slots."""
        s, they_are = ("s", "it is") if len(self.slots) == 1 else ("", "they are")
        if self.left.second is None:
            return f"get{s} other values"
        if self.left.second:
            return f"shrink{s} to {self.left.second:g} of what {they_are}"
        return f"become{s} 0" if self.is_named else f"restart{s}"


class Shift(msgspec.Struct, frozen=True):
    """A clock of a bias correction that a plan sets to another number while its slots go on; see ``Restart``."""

    clock: LeafPath
    counted: LeafRef
    slots: tuple[Slot, ...]
    to: int
    decays: Decays | None = None

    def sentence(self, count: int) -> str | None:
        """What that does to the next steps once the clock has counted ``count``; None if next to nothing."""
        if self.to == count:
            return None
        start = f"'{self.clock}' goes from {count:,} to {self.to:,} while {_slots(self.slots)}"
        start += " goes on:" if len(self.slots) == 1 else " go on:"
        leave = worded(
            "leave it, or reset all its slots with it: `reset-optimizer` with {clocks: true}"
        )
        one = self.slots[0]
        condition = whose_steps(one.kinds, one.factory, UNDER_ANOTHER_COUNT)
        if condition is None:
            return Text(f"{start} {not_worked_out(one)}; ", leave)
        decays = self.decays
        if decays is None:
            return f"{start} the next steps there are corrected for steps that never were"
        choose = min if self.to < count else max
        factor, step = most_apart(count, self.to, decays, choose=choose)
        if 0.9 < factor < 1.1:
            return None
        large = f"{factor:.2g} times as large as usual (step {step}, with {decays.words})"
        return Text(f"{start} {condition}the next steps there are {large}; ", leave)


def _unread(_: LeafRef) -> None:
    """No value is read."""


def restarts(draft: Draft, number: Number = _unread) -> list[Restart]:
    """The resets and losses of squares under a bias correction that goes on, by clock, in stored order.

    ``number`` reads stored decays.
    """
    found: dict[tuple[LeafPath, Left, bool], list[Slot]] = {}
    clocks: dict[LeafPath, LeafPath] = {}
    for slot in draft.slots.values():
        changed = _left_of(slot, draft) if slot.is_second_moment else None
        if changed is None:
            continue
        for path in slot.clocks:
            clock = draft.clock_at(path)
            if clock is None or clock.drives != "bias_correction":
                continue
            if not is_fresh(draft.leaves[path], clock):
                clocks[clock.path] = path
                found.setdefault((clock.path, *changed), []).append(slot)
    return [
        Restart(
            clock=clock,
            counted=counted_at(clocks[clock], draft),
            slots=tuple(slots),
            left=left,
            is_named=is_named,
            set_to=set_to(draft.leaves[clocks[clock]]),
            remedy=remedy_for(slots, is_named, draft),
            decays=decays_of(slots[0], draft, number),
        )
        for (clock, left, is_named), slots in found.items()
    ]


def shifts(draft: Draft, number: Number = _unread) -> list[Shift]:
    """The clocks of bias corrections that are set while slots with squares go on; ``number`` reads stored decays."""
    found = []
    for path, recipe in draft.leaves.items():
        to = set_to(recipe) if recipe.edits else None
        clock = draft.clock_at(path) if to is not None else None
        if to is None or clock is None or clock.drives != "bias_correction":
            continue
        kept = [
            slot
            for slot in draft.driven_by(path)
            if slot.is_second_moment
            and not has_restarted(slot, draft)
            and has_seen(slot, path, draft)
        ]
        if kept:
            decays = decays_of(kept[0], draft, number)
            found.append(Shift(clock.path, counted_at(path, draft), tuple(kept), to, decays))
    return found


def has_seen(slot: Slot, clock: LeafPath, draft: Draft) -> bool:
    """True if what a slot holds was gathered in the steps that its clock counted where that is stored."""
    stored = stored_in(draft.leaves[slot.path].recipe, beyond=is_computed)
    return {one.ref.source for one in stored} <= {counted_at(clock, draft).source}


def counted_at(clock: LeafPath, draft: Draft) -> LeafRef:
    """Where the count of a clock of the draft is stored: in the source, or in the donor that gave it."""
    return draft.leaves[clock].home or LeafRef(SOURCE, clock)


def _left_of(slot: Slot, draft: Draft) -> tuple[Left, bool] | None:
    """What is left of a slot with squares and of its first moments, and whether an edit names it; None if all is."""
    recipe = draft.leaves[slot.path]
    if recipe.policy == "reset":
        return Left(_first_left(slot, draft), 0.0), False
    part = _part_left(recipe)
    if part == 1 or (part and part > 1):
        return None
    param = draft.leaves.get(slot.param)
    if part != 0 and param is not None and param.edits:
        return None  # who edits both by name lets the squares follow
    return Left(_first_left(slot, draft), part), True


def _first_left(square: Slot, draft: Draft) -> float:
    """What is left of the first moments beside a slot with squares."""
    parts = []
    for slot in draft.slots_of.get(square.param, ()):
        if slot.node.parent != square.node.parent or slot.is_second_moment or slot.is_params_like:
            continue
        recipe = draft.leaves[slot.path]
        has_gone = recipe.policy == "reset" or filled_with(recipe) == 0
        parts.append(0.0 if has_gone else _part_left(recipe))
    return max((1.0 if part is None else part for part in parts), default=1.0)


def _part_left(recipe: Output) -> float | None:
    """The part of a leaf's size that edits which name it leave; None if nobody knows."""
    part: float | None = 1.0
    for edit in recipe.edits:
        if not edit.is_named or keeps_size(edit.effect):
            continue
        match edit.effect:
            case Sets(to=number):
                part = 0.0 if number == 0 else None
            case Scales(by=float() | int() as factor):
                part = 0.0 if factor == 0 else part and part * abs(factor)
            case _:
                part = part and None
    return part


def remedy_for(slots: list[Slot], is_named: bool, draft: Draft) -> str:
    """What avoids it, for the edit that resets the slots."""
    if is_named:
        return BY_LEAVING
    return _BY_EDIT if all(_may_be_warm(slot, draft) for slot in slots) else BY_RESET


def _may_be_warm(slot: Slot, draft: Draft) -> bool:
    """True if an edit of the slot's param resets it, and not because a factor of 0 leaves nothing else to do."""
    param = draft.leaves.get(slot.param)
    if param is None:
        return False
    has_old_values = param.home is not None and param.home.source == SOURCE and not param.edits
    if has_old_values:
        return False
    return not any(edit.effect == Scales(0) for edit in param.edits)


def _slots(slots: tuple[Slot, ...]) -> str:
    return f"{counted(len(slots), 'slot')} with squares"
