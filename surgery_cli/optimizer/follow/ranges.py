"""Numbers that an optimizer keeps and that cannot be just any: counters of steps, learning rates, decays."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from surgery_cli.draft.expression import LeafRef
from surgery_cli.draft.recipe import SOURCE, Draft
from surgery_cli.errors import PlanError, Problem
from surgery_cli.optimizer.follow.clocks import DRIVES, filled_with, standing
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
    if problems:
        raise PlanError.of(problems)


def _outside(path: LeafPath, number: float, why: str, allowed: str) -> Problem:
    return Problem(
        f"'{path}' cannot be {number:g}",
        why=why,
        fix=f"set it to {allowed}",
        path=str(path),
        field="to",
    )
