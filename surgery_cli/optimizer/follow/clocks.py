"""Clocks and the slots they drive: both restart together, or the optimizer corrects for steps that never were."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from surgery_cli.draft.effect import constant_after
from surgery_cli.draft.expression import LeafRef
from surgery_cli.draft.recipe import SOURCE, Draft, Output, is_numeric
from surgery_cli.draft.slots import Clock, Slot
from surgery_cli.errors import Problem, raise_all
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.advice import worded
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage

NEEDS_SLOTS: Final = frozenset({"bias_correction", "decay", "first_step", "cycle", "memory"})
"""What a clock drives that is wrong for a slot which did not restart with it; a schedule may restart alone."""

DRIVES: Final = {
    "bias_correction": "the bias correction",
    "decay": "the decay",
    "first_step": "the switch for a first step",
    "cycle": "the place in a cycle",
    "memory": "the places in a memory",
    "schedule": "a schedule",
}
"""What a clock drives, in words."""

_SHOWN: Final = 4


def refuse_half_resets(draft: Draft) -> None:
    """A clock goes back to its start only together with every slot that it drives.

    Raises:
        PlanError: some of them go on; lists each such clock.
    """
    problems: list[Problem] = []
    for path, recipe in draft.leaves.items():
        clock = draft.clock_at(path) if recipe.edits else None
        if clock is None or clock.drives not in NEEDS_SLOTS or not is_fresh(recipe, clock):
            continue
        driven = draft.driven_by(path)
        kept = [slot for slot in driven if not has_restarted(slot, draft)]
        if kept:
            problems.append(_half_reset(path, clock, kept, len(driven), recipe))
        elif clock.drives != "cycle" and not clock.slots and not _has_holes(clock, draft):
            problems.append(_unknown_slots(path, clock))
    raise_all(problems)


def _half_reset(
    path: LeafPath, clock: Clock, kept: list[Slot], driven: int, recipe: Output
) -> Problem:
    by_reset = recipe.policy == "reset"  # of `reset-optimizer`, which takes no policy
    leave = worded(
        "take {clocks: true} out, or reset all its slots: `reset-optimizer` without a pattern"
    )
    warm = worded(
        "leave it and use {optimizer: warm} for the edit, or reset them all: `reset-optimizer` with"
        " {clocks: true}"
    )
    names = quoted((slot.path for slot in kept), 1)
    return Problem(
        f"'{path}' would start anew while {names} {'go' if len(kept) > 1 else 'goes'} on",
        why=f"it counts the steps of {driven} slots, for {DRIVES[clock.drives]}, and {len(kept)} of them are not reset",
        fix=leave if by_reset else warm,
        path=str(path),
    )


def removed_clock_notes(draft: Draft) -> Iterator[Consequence]:
    """For each clock that no leaf continues, the slots that it drives and that stay: their steps are lost with it."""
    gone = [path for path in draft.clocks if draft.standing(path) not in draft.leaves]
    removed = set(draft.removed) if gone else set()
    for path in gone:
        if path not in removed:
            continue
        clock = draft.clocks[path]
        driven = (slot for slot in draft.slots.values() if _counts_by(slot, clock, draft))
        kept = [slot for slot in driven if not has_restarted(slot, draft)]
        if not kept:
            continue
        is_one = len(kept) == 1
        stay, them = (
            ("1 slot stays that needs", "it")
            if is_one
            else (f"{len(kept):,} slots stay that need", "them")
        )
        nodes = quoted(dict.fromkeys(slot.node for slot in kept), _SHOWN)
        yield Consequence(
            DocsPage.COUNTERS,
            f"'{path}' goes, and {stay} it for {DRIVES.get(clock.drives, 'their steps')} ({nodes}): how many steps are"
            f" in {them} is no longer known; leave it, or take out {them}, too",
        )


def _counts_by(slot: Slot, clock: Clock, draft: Draft) -> bool:
    """True for a slot that a clock of the source drives, wherever edits have put it."""
    homes = (home.path for home in draft.leaves[slot.path].homes if home.source == SOURCE)
    return clock.path in slot.clocks or any(home in clock.slots for home in homes)


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
        fix=worded(
            "leave it, or say where the params stand with {params}; set every other number as you like"
        ),
        path=str(path),
    )


def is_fresh(recipe: Output, clock: Clock) -> bool:
    """True if the plan sets the clock to the number from which the optimizer counts."""
    return filled_with(recipe) == clock.fresh


def has_restarted(slot: Slot, draft: Draft) -> bool:
    """True if the plan puts the slot's initial value into it, or if it holds nothing that could restart."""
    recipe = draft.leaves[slot.path]
    if slot.relation in ("hole", "one") or not is_numeric(recipe.spec):
        return True
    if slot.takes_param:
        return recipe.policy == "reset" or recipe.home == draft.leaves[slot.param].home
    number = filled_with(recipe)
    return number is not None and slot.fresh in (None, number)


def filled_with(recipe: Output, before: float | None = None) -> float | None:
    """The one number that every element of a leaf will be, where the edits tell it; ``before`` is what each one was."""
    for edit in recipe.edits:
        before = constant_after(edit.effect, before)
    return before


def set_to(recipe: Output) -> int | None:
    """The count that the plan sets a clock to; None if it sets it to none."""
    number = filled_with(recipe)
    return None if number is None else int(number)


def standing(recipe: Output, number: Callable[[LeafRef], float | None]) -> float | None:
    """What a scalar stands at after the edits so far, of which ``number`` reads a stored one; None if not known."""
    filled = filled_with(recipe)
    if filled is not None or recipe.home is None:
        return filled
    return filled_with(recipe, number(recipe.home))
