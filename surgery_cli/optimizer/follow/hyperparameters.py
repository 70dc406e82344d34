"""Numbers that an optimizer keeps and no edit may make just any: counters, learning rates, what schedules give."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from surgery_cli.draft.effect import keeps_size
from surgery_cli.draft.expression import LeafRef
from surgery_cli.draft.recipe import SOURCE, Draft, Output
from surgery_cli.errors import Problem, raise_all
from surgery_cli.optimizer.follow.clocks import DRIVES, filled_with, standing
from surgery_cli.tree.dtypes import is_integer
from surgery_cli.tree.paths import LeafPath


class _Range(NamedTuple):
    low: float
    high: float
    why: str
    holds_high: bool = True

    def holds(self, number: float) -> bool:
        return self.low <= number and (
            number <= self.high if self.holds_high else number < self.high
        )

    @property
    def words(self) -> str:
        if self.high == math.inf:
            return f"{self.low:g} or more"
        return f"a number from {self.low:g} to {self.high:g}" + (
            "" if self.holds_high else f", {self.high:g} itself left out"
        )


_RATE: Final = _Range(
    0, math.inf, "optax subtracts it times the update: below 0 every step goes uphill"
)
_MOMENT: Final = _Range(
    0, 1, "optax divides by 1 minus its power, for the bias correction", holds_high=False
)
_DECAY: Final = _Range(0, 1, "it is the share of the old value that stays")
_SIZE: Final = _Range(0, math.inf, "optax takes it for a size, which is never negative")
_RANGES: Final[Mapping[str, _Range]] = {
    "learning_rate": _RATE,
    "b1": _MOMENT,
    "b2": _MOMENT,
    "decay": _DECAY,
    "decay_rate": _DECAY,
    "momentum": _DECAY,
    "eps": _SIZE,
    "eps_root": _SIZE,
    "max_norm": _SIZE,
    "max_delta": _SIZE,
}
"""By the name of the argument of optax's factories, which ``inject_hyperparams`` keeps."""


def refuse_out_of_range(
    draft: Draft,
    hyperparams: Mapping[LeafPath, str],
    number: Callable[[LeafRef], float | None],
) -> None:
    """A counter is never set below 0, nor is a hyperparameter made what its factory has no meaning for.

    ``hyperparams`` say what a number of the source is, and ``number`` reads one that an edit scales.

    Raises:
        PlanError: edits make such numbers; lists each of them.
    """
    problems: list[Problem] = []
    for path in draft.changed:
        recipe = draft.leaves[path]
        origin = recipe.home
        if origin is None or origin.source != SOURCE or not recipe.edits:
            continue
        clock = draft.clocks.get(origin.path)
        allowed = _RANGES.get(hyperparams.get(origin.path, ""))
        if clock is None and allowed is None:
            continue
        value = filled_with(recipe)
        if value is None and allowed is not None and recipe.spec.size == 1:
            value = standing(recipe, number)
        if value is None:
            continue
        if clock is not None and value < 0:
            counted = f"steps, for {DRIVES[clock.drives]}" if clock.drives in DRIVES else "from 0"
            problems.append(_outside(path, value, f"it counts {counted}", "0 or more"))
        elif allowed is not None and not allowed.holds(value):
            problems.append(_outside(path, value, allowed.why, allowed.words))
    raise_all(problems)


def _outside(path: LeafPath, number: float, why: str, allowed: str) -> Problem:
    return Problem(
        f"'{path}' cannot be {number:g}",
        why=why,
        fix=f"set it to {allowed}",
        path=str(path),
        field="to",
    )


_VALUES: Final = "hyperparams"
_STATES: Final = "hyperparams_states"
"""Fields of ``optax.inject_hyperparams``: the second has an entry for each hyperparameter that a schedule gives."""


def refuse_overwritten(draft: Draft) -> None:
    """A hyperparameter is given another value only if no schedule gives it one.

    Edits of the whole state (a cast, an average, a state from a donor) take such numbers along. Where the plan deletes
    the schedule's own state, the script that restores the result has no such schedule.

    Raises:
        PlanError: edits set numbers that a schedule overwrites; lists each of them.

    Source: ``update_fn`` of ``optax.inject_hyperparams``.
    """
    problems: list[Problem] = []
    for path in draft.changed:
        node = _schedule_of(path)
        if node is None:
            continue
        state = [leaf for leaf in draft.leaves if leaf.is_below(node)]
        if state and _is_set(draft.leaves[path], state, draft):
            problems.append(_overwritten(path, node, state, draft))
    raise_all(problems)


def _schedule_of(path: LeafPath) -> LeafPath | None:
    """Where the state of its schedule stands, if the leaf is a hyperparameter and has one."""
    places = [n for n, key in enumerate(path[:-1]) if key == _VALUES]
    if not places:
        return None
    at = places[-1]
    return LeafPath((*path[:at], _STATES, path[at + 1]))


def _is_set(recipe: Output, state: Collection[LeafPath], draft: Draft) -> bool:
    """True if an edit gives the number a value which its schedule does not come along with."""
    if any(not keeps_size(edit.effect) for edit in recipe.edits):
        return True
    is_theirs = recipe.home is not None and recipe.home.source != SOURCE
    return is_theirs and all(map(draft.is_untouched, state))


def _overwritten(
    path: LeafPath, node: LeafPath, state: Collection[LeafPath], draft: Draft
) -> Problem:
    counts = [leaf for leaf in state if is_integer(draft.leaves[leaf].spec.dtype)]
    instead = f"set '{counts[0]}', its step count, instead" if counts else "edit that instead"
    return Problem(
        f"'{path}' would be overwritten at the next step",
        why=f"a schedule gives it: '{node}' is the schedule's state",
        fix=f"{instead}; if your script no longer has the schedule, `delete` '{node}' in the same plan",
        path=str(path),
    )
