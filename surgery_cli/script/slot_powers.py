"""What trial runs show of a slot: of which power of a factor it is, beside what is left of its start."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from surgery_cli.optimizer.slots import Fading
from surgery_cli.script.fading import Started, tried_starts
from surgery_cli.script.trial_runs import SIZES, STEPS, Run, Runs, Trial, param_of
from surgery_cli.tree.paths import LeafPath

_POWERS: Final = (-1, -2, 0, 1, 2)
_MIXED: Final = "what is left of its start depends on the gradients (as in Yogi), or they are clipped or decayed"
_TOLERANCE: Final = 2e-3
"""How far a slot may lie from what its power makes of it, relative."""


class Measured(msgspec.Struct, frozen=True):
    """What was seen of one slot: its power and parity (see ``Slot``), and its initial value.

    ``power`` is None where the slot stayed zero, or is no power of the factor; ``because`` says which. ``fresh`` is
    None where initial values are not all the same. ``is_per_leaf``: the power holds for one factor of a whole leaf,
    not for arrays of factors. ``not_at`` are sizes of gradients at which it does not hold. Of an initial value other
    than zero, all ``stays``, or it fades by one of ``fadings``; with neither, ``start_because`` says why that is not
    known.
    """

    power: int | None
    is_even: bool
    fresh: float | None
    because: str = ""
    is_per_leaf: bool = False
    not_at: tuple[float, ...] = ()
    stays: bool = False
    fadings: tuple[Fading, ...] = ()
    start_because: str = ""

    def below(self, node: LeafPath) -> Measured:
        """The same, with paths below ``node``."""
        fadings = tuple(
            msgspec.structs.replace(one, clock=node / one.clock) for one in self.fadings
        )
        return msgspec.structs.replace(self, fadings=fadings)


def held_at(held: Measured, fresh: float | None, seen: Mapping[float, Measured]) -> Measured:
    """A power that holds at some sizes of gradients, and at which it does not."""
    failed = tuple(
        size for size, one in seen.items() if (one.power, one.is_even) != (held.power, held.is_even)
    )
    per_leaf = any(one.is_per_leaf for one in seen.values())
    return Measured(held.power, held.is_even, fresh, is_per_leaf=per_leaf, not_at=failed)


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
    runs = {size: trial.runs(size, steps) for size in sorted({*SIZES, *near})} if known else {}
    for path, start in known.items():
        one = _above_start(
            path, trial, {n: r for n, r in runs.items() if _shows(path, r, start)}, start
        )
        is_held = one.power is not None and not near & set(one.not_at)
        found[path] = (
            msgspec.structs.replace(one, stays=start.stays, fadings=start.fadings)
            if is_held
            else Measured(None, False, start.fresh, _MIXED, start_because=_MIXED)
        )
    return found


def _above_start(
    path: LeafPath, trial: Trial, runs: Mapping[float, Runs], start: Started
) -> Measured:
    """What is seen of one slot beside its start, in the runs of all sizes of gradients that show it."""
    param = param_of(path, trial.params)
    if param is None:
        return Measured(None, False, start.fresh)
    seen = {size: seen_in(path, param, one, start) for size, one in runs.items()}
    held = next((one for one in seen.values() if one.power is not None), None)
    return held_at(held, start.fresh, seen) if held else Measured(None, False, start.fresh)


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
