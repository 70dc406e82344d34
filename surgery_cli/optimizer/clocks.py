"""Clocks and the slots they drive: both restart together, or the optimizer corrects for steps that never were."""

from __future__ import annotations

from typing import Final

import msgspec

from surgery_cli.draft import SOURCE, Draft, LeafRecipe, is_numeric
from surgery_cli.errors import PlanError, Problem
from surgery_cli.optimizer.slots import Clock, Slot
from surgery_cli.tree.paths import LeafPath

NEEDS_SLOTS: Final = frozenset({"bias_correction", "decay", "first_step", "cycle"})
"""What a clock drives that is wrong for a slot which did not restart with it; a schedule may restart alone."""

DRIVES: Final = {
    "bias_correction": "the bias correction",
    "decay": "the decay",
    "first_step": "the switch for a first step",
    "cycle": "the place in a cycle",
    "schedule": "a schedule",
}
"""What a clock drives, in words."""

_USUAL_DECAY: Final = {"adam-family": (0.9, 0.999), "rmsprop": (0.0, 0.9)}
"""Decay of first and second moments where nobody changed optax's defaults; by family."""

_HORIZON: Final = 200
"""Steps among which the largest one after a restart is looked for."""


class Restart(msgspec.Struct, frozen=True):
    """Slots with squares that a plan resets while the clock of their bias correction goes on.

    ``clock`` is the path in the source. ``follows_edit``: an edit of their params resets them, by a policy that it may
    change; else the slots are reset by themselves.
    """

    clock: LeafPath
    slots: tuple[Slot, ...]
    follows_edit: bool = True

    def sentence(self, count: int) -> str | None:
        """What that does to the next steps once the clock has counted ``count``; None if next to nothing."""
        word = "slot" if len(self.slots) == 1 else "slots"
        start = (
            f"{len(self.slots)} {word} with squares restart while '{self.clock}' is at {count:,}:"
        )
        decay = _USUAL_DECAY.get(self.slots[0].optimizer)
        if decay is None:
            return f"{start} the next steps there can be several times too large; {self._remedy}"
        factor, step = largest_step(count, *decay)
        if factor < 1.1:
            return None
        usual = " and ".join(f"b{n} = {b}" for n, b in enumerate(decay, 1) if b)
        return (
            f"{start} the next steps there are up to {factor:.1f} learning rates large (step {step}, with {usual});"
            f" {self._remedy}"
        )

    @property
    def _remedy(self) -> str:
        """What avoids it, for the edit that resets them."""
        if self.follows_edit:
            return "`optimizer: warm` for the edit avoids it"
        return "`reset-optimizer` of all its slots (no pattern) with `clocks: true` (`--clocks`) avoids it"


def largest_step(count: int, b1: float, b2: float) -> tuple[float, int]:
    """The largest step after zeroing both moments at ``count``, in learning rates, and how many steps later.

    Under gradients of one size and sign, the moments have grown to 1 - b^k after k steps, and the optimizer divides
    by 1 - b^(count + k).

    >>> largest_step(100_000, 0.9, 0.999)
    (6.568..., 12)
    >>> largest_step(0, 0.9, 0.999)
    (1.0, 1)
    """

    def step(k: int) -> float:
        first = (1 - b1**k) / (1 - b1 ** (count + k))
        second = (1 - b2**k) / (1 - b2 ** (count + k))
        return float(first / second**0.5)

    largest = max(range(1, _HORIZON), key=step)
    return step(largest), largest


def restarts(draft: Draft) -> list[Restart]:
    """The resets of squares under a bias correction that goes on, by clock, in stored order."""
    found: dict[LeafPath, list[Slot]] = {}
    for slot in draft.slots.values():
        if not slot.is_second_moment or draft.leaves[slot.path].policy != "reset":
            continue
        for path in slot.clocks:
            clock = draft.clock_at(path)
            if clock is None or clock.drives != "bias_correction":
                continue
            if not _is_fresh(draft.leaves[path], clock):
                found.setdefault(clock.path, []).append(slot)
    return [
        Restart(clock, tuple(slots), all(_may_be_warm(slot, draft) for slot in slots))
        for clock, slots in found.items()
    ]


def _may_be_warm(slot: Slot, draft: Draft) -> bool:
    """True if an edit of the slot's param resets it, and not because a factor of 0 leaves nothing else to do."""
    param = draft.leaves.get(slot.param)
    if param is None:
        return False
    has_old_values = param.origin is not None and param.origin.source == SOURCE and not param.steps
    if has_old_values:
        return False
    return not any(getattr(step.operation, "by", None) == 0 for step in param.steps)


def refuse_half_resets(draft: Draft) -> None:
    """A clock goes back to its start only together with every slot that it drives, and never below it.

    Raises:
        PlanError: some of them go on; lists each such clock.
    """
    problems: list[Problem] = []
    for path, recipe in draft.leaves.items():
        clock = draft.clock_at(path) if recipe.steps else None
        number = filled_with(recipe) if clock is not None else None
        if clock is not None and clock.drives in DRIVES and number is not None and number < 0:
            problems.append(_negative(path, clock, number))
        if clock is None or clock.drives not in NEEDS_SLOTS or not _is_fresh(recipe, clock):
            continue
        driven = [slot for slot in draft.slots.values() if path in slot.clocks]
        kept = [slot for slot in driven if not _has_restarted(slot, draft)]
        if kept:
            problems.append(_half_reset(path, clock, kept, len(driven)))
        elif clock.drives != "cycle" and not clock.slots and not _has_holes(clock, draft):
            problems.append(_unknown_slots(path, clock))
    if problems:
        raise PlanError.of(problems)


def _negative(path: LeafPath, clock: Clock, number: float) -> Problem:
    return Problem(
        f"'{path}' cannot be {number:g}",
        why=f"it counts steps, for {DRIVES[clock.drives]}; optax counts from {clock.fresh}",
        fix="set it to 0 or more",
        path=str(path),
        field="to",
    )


def _half_reset(path: LeafPath, clock: Clock, kept: list[Slot], driven: int) -> Problem:
    others = f" and {len(kept) - 1} more" if len(kept) > 1 else ""
    return Problem(
        f"'{path}' would start anew while '{kept[0].path}'{others} {'go' if others else 'goes'} on",
        why=f"it counts the steps of {driven} slots, for {DRIVES[clock.drives]}, and {len(kept)} of them are not reset",
        fix="leave it and use `optimizer: warm` for the edit, or reset them all: `reset-optimizer` with `clocks: true`",
        path=str(path),
    )


def _has_holes(clock: Clock, draft: Draft) -> bool:
    """True if the clock's state leaves out every param that it could keep slots of."""
    owner = clock.path.parent
    return any(
        slot.relation == "hole" and slot.path.is_below(owner) for slot in draft.slots.values()
    )


def _unknown_slots(path: LeafPath, clock: Clock) -> Problem:
    return Problem(
        f"'{path}' would start anew, and the slots that it drives are not known",
        why=f"it counts steps for {DRIVES[clock.drives]}, but the slots are found by the params that they mirror",
        fix="leave it, or say where the params stand with `params:`; set every other number as you like",
        path=str(path),
    )


def _is_fresh(recipe: LeafRecipe, clock: Clock) -> bool:
    return filled_with(recipe) == clock.fresh


def _has_restarted(slot: Slot, draft: Draft) -> bool:
    """True if the plan puts the slot's initial value into it, or if it holds nothing that could restart."""
    recipe = draft.leaves[slot.path]
    if slot.relation in ("hole", "one") or not is_numeric(recipe.spec):
        return True
    if slot.takes_param:
        return recipe.policy == "reset" or recipe.origin == draft.leaves[slot.param].origin
    number = filled_with(recipe)
    return number is not None and slot.fresh in (None, number)


def filled_with(recipe: LeafRecipe) -> float | None:
    """The one number that every element of a leaf will be, where the steps alone tell it."""
    number: float | None = None
    for step in recipe.steps:
        number = step.operation.filled(number)
    return number
