"""Why a reset of the optimizer state finds no slot: none is named, none is known, or nobody said what trees are."""

from __future__ import annotations

from collections.abc import Collection

from surgery_cli.draft.placeholders import slots_line
from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import PlanError
from surgery_cli.optimizer.detect.groups import LIKE_INIT
from surgery_cli.words.advice import InPlan, Text, worded
from surgery_cli.words.lists import quoted

_UNKNOWN = "no slot is there to reset: no state of an optimizer is known in the tree"


def nothing_to_reset(draft: Draft, patterns: Collection[str]) -> PlanError:
    """The refusal of an edit that names no slot by its ``patterns``, or finds none without any."""
    if any(slot.in_optimizer for slot in draft.slots.values()):
        return PlanError(
            "the edit names no slot of the optimizer state",
            why="slots are the leaves that `surgery inspect --optimizer` shows as twins of params",
            fix="name params or slots, or leave out the pattern to reset all slots"
            if patterns
            else "see there which of them hold numbers",
            field="at",
        )
    if draft.items.is_partial:
        return PlanError(
            _UNKNOWN,
            why="slots are found by the params that they mirror",
            fix="leave `--item` out: the params may stand in another item of the step",
            field="at",
        )
    unsaid = {slot.node: slot for slot in draft.slots.values() if slot.assumed is not None}
    if unsaid:
        first, *others = unsaid
        taken = unsaid[first].assumed
        return PlanError(
            _UNKNOWN,
            why=f"{quoted(unsaid, word='and')} {'are' if others else 'is'} like the params, and"
            f" nothing says what {'they are' if others else 'it is'}",
            fix=Text(
                taken.settled_by if taken is not None else "",
                f"; and so of {quoted(others, word='and')}" if others else "",
            ),
            field="slots",
        )
    if any(clock.drives != "nothing" for clock in draft.clocks.values()) and not draft.slots:
        return PlanError(
            "no slot is there to reset",
            why="slots are found by the params that they mirror, and the tree has no such params",
            fix="put the params beside it first: `surgery insert-item CKPT NEW params --with PARAMS`;"
            " or let the script begin with its own fresh state and not restore this one",
            field="at",
        )
    return PlanError(
        _UNKNOWN,
        why="nothing in it mirrors the params, but for what is known as a copy of them",
        fix=worded(
            "if some tree holds slots all the same, add {}, with its PATH, the NODE of params that it mirrors, its"
            " power K and its initial value X; or {}",
            InPlan(slots_line("PATH", of="NODE", power="K", fresh="X")),
            LIKE_INIT,
        ),
        field="at",
    )
