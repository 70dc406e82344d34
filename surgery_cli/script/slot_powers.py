"""What trial runs show of a slot: of which power of a factor it is, beside what is left of its start."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from surgery_cli.optimizer.assumptions import Assumption, seen_at
from surgery_cli.optimizer.slots import Fading
from surgery_cli.script.fading import Started, tried_starts
from surgery_cli.script.trial_runs import (
    GRADIENTS,
    PARAMS,
    STEPS,
    Run,
    Runs,
    Sizes,
    Trial,
    param_of,
)
from surgery_cli.tree.paths import LeafPath

USUAL: Final = (Sizes(1e-3), Sizes(1.0))
"""At one of these a power must hold: where clips rest, or where no epsilon and no decay is felt."""
_POWERS: Final = (-1, -2, 0, 1, 2)
_MIXED: Final = "what is left of its start depends on the gradients (as in Yogi), or they are clipped or decayed"
_TOLERANCE: Final = 2e-3
"""How far a slot may lie from what its power makes of it, relative."""


class Measured(msgspec.Struct, frozen=True):
    """What was seen of one slot: its power and parity (see ``Slot``), and its initial value.

    ``power`` is None where the slot stayed zero, or is no power of the factor; ``because`` says which. ``fresh`` is
    None where initial values are not all the same. ``is_per_leaf``: the power holds for one factor of a whole leaf,
    not for arrays of factors. ``assumed`` names the sizes of gradients and params at which it holds, if not at all. Of
    an initial value other than zero, all ``stays``, or it fades by one of ``fadings``; with neither, ``start_because``
    says why that is not known.
    """

    power: int | None
    is_even: bool
    fresh: float | None
    because: str = ""
    is_per_leaf: bool = False
    assumed: Assumption | None = None
    stays: bool = False
    fadings: tuple[Fading, ...] = ()
    start_because: str = ""

    @property
    def rule(self) -> tuple[int | None, bool]:
        """What a factor does to it, whole leaves at once."""
        return self.power, self.is_even

    def below(self, node: LeafPath) -> Measured:
        """The same, with paths below ``node``."""
        fadings = tuple(
            msgspec.structs.replace(one, clock=node / one.clock) for one in self.fadings
        )
        return msgspec.structs.replace(self, fadings=fadings)


_NO_RULE: Final = (None, False)


def held_at(usual: Sizes, fresh: float | None, at: Callable[[Sizes], Measured | None]) -> Measured:
    """A power that holds at ``usual``, and at which other sizes. ``at`` says what is seen there; None if nothing is."""
    rule = (at(usual) or Measured(*_NO_RULE, None)).rule
    by_gradients = {size: at(usual._replace(gradients=size)) for size in GRADIENTS}
    by_params = {size: at(usual._replace(params=size)) for size in PARAMS}
    rules = {one.rule for one in (by_params[size] for size in PARAMS[1:]) if one is not None} - {
        _NO_RULE
    }
    if rules != {rule}:  # params of a model may be of any of these sizes
        return Measured(None, False, fresh, "its power depends on how large the params are")
    seen = [one for one in (*by_gradients.values(), *by_params.values()) if one is not None]
    axes = (
        {size: one.rule == rule for size, one in every.items() if one is not None}
        for every in (by_gradients, by_params)
    )
    per_leaf = any(one.is_per_leaf for one in seen)
    return Measured(*rule, fresh, is_per_leaf=per_leaf, assumed=seen_at(*axes))


def measured_above_starts(
    trial: Trial, fresh: Mapping[LeafPath, float]
) -> dict[LeafPath, Measured]:
    """What is seen of slots that start elsewhere than at zero: whether all but what is left of it follows a power.

    Gradients are also as large as the start and its root, where rules that mix both in another way show it.
    """
    starts = tried_starts(trial, fresh)
    known = {path: one for path, one in starts.items() if one.stays or one.fadings}
    found = {
        path: Measured(None, False, one.fresh, one.because, start_because=one.because)
        for path, one in starts.items()
        if path not in known
    }
    steps = max([STEPS, *(one.steps for one in known.values())])
    near = {
        size * times
        for start in {abs(one.fresh) for one in known.values()}
        for size in (math.sqrt(start), start)
        for times in (1.0, 10.0)
    }
    for path, start in known.items():
        one = _above_start(path, trial, start, steps, sorted(near))
        found[path] = (
            msgspec.structs.replace(one, stays=start.stays, fadings=start.fadings)
            if one.power is not None
            else Measured(None, False, start.fresh, _MIXED, start_because=_MIXED)
        )
    return found


def _above_start(
    path: LeafPath, trial: Trial, start: Started, steps: int, near: Sequence[float]
) -> Measured:
    """What is seen of one slot beside its start, in the runs of all sizes that show it."""
    param = param_of(path, trial.params)

    def at(sizes: Sizes) -> Measured | None:
        runs = trial.runs(sizes, steps)
        return seen_in(path, param, runs, start) if param and _shows(path, runs, start) else None

    # what a start hides at usual gradients, larger ones show
    tried = (*USUAL, *map(Sizes, near), Sizes(GRADIENTS[-1]))
    seen = {sizes: one for sizes in tried if (one := at(sizes)) is not None}
    usual = next((sizes for sizes, one in seen.items() if one.power is not None), None)
    if usual is None or any(seen.get(Sizes(n), seen[usual]).rule != seen[usual].rule for n in near):
        return Measured(None, False, start.fresh)
    return held_at(usual, start.fresh, at)


def _shows(path: LeafPath, runs: Runs, start: Started) -> bool:
    """True if what a slot gathers can be told from what is left of its start."""
    left = start.left(runs.plain.last)
    gathered = abs(runs.plain.last[path] - left)
    return bool(gathered.size and (gathered >= 100 * _noise(left)).all())


def _noise(left: float) -> float:
    """By how much rounding may move a slot that holds this much of its start."""
    return 16 * 2.0**-24 * abs(left)


def seen_in(path: LeafPath, param: LeafPath, runs: Runs, start: Started | None = None) -> Measured:
    """What the runs with gradients of one size show."""
    import numpy as np

    base = runs.plain.last[path] - (start.left(runs.plain.last) if start else 0.0)
    if not base.size or not base.all() or not np.isfinite(base).all():
        return Measured(None, False, None, "it stayed zero, or did not stay finite")
    for power in _POWERS:
        for is_even in (False, True):
            rule = power, is_even
            if all(_follows(path, param, rule, base, run, start) for run in runs.numbers):
                whole = all(_follows(path, param, rule, base, run, start) for run in runs.arrays)
                return Measured(power, is_even, None, is_per_leaf=not whole)
    return Measured(None, False, None, "it follows no power of a factor of its own param alone")


def _follows(
    path: LeafPath,
    param: LeafPath,
    rule: tuple[int, bool],
    base: Any,
    run: Run,
    start: Started | None,
) -> bool:
    """True if the slot is what the power makes of it; one of another shape than its param follows no array."""
    import numpy as np

    power, is_even = rule
    factor = run.factors[param].astype(np.float64)
    if factor.ndim and factor.shape != base.shape:
        return False
    left = start.left(run.last) if start else 0.0
    scale = np.abs(factor) ** power
    wanted = base * scale * (1 if is_even else np.sign(factor))
    most = _TOLERANCE * np.abs(wanted) + _noise(left) * (1 + scale)
    return bool((np.abs(run.last[path] - left - wanted) <= most).all())
