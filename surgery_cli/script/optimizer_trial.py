"""The script's own optimizer, tried out on tiny params: what becomes of its slots when params are scaled."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from surgery_cli.optimizer.assumptions import seen_at
from surgery_cli.optimizer.detect.groups import LIKE_INIT
from surgery_cli.optimizer.detect.survey import OptimizerSurvey
from surgery_cli.optimizer.slots import Slot
from surgery_cli.script.optimizers import Optimizer
from surgery_cli.script.pytrees import plain_path
from surgery_cli.script.trial_runs import SIZES, Run, Runs, Trial, param_of
from surgery_cli.tree.paths import LeafPath

_POWERS: Final = (-1, -2, 0, 1, 2)
_TOLERANCE: Final = 2e-3
"""How far a slot may lie from what its power makes of it, relative."""


class Measured(msgspec.Struct, frozen=True):
    """What was seen of one slot: its power and parity (see ``Slot``), and its initial value.

    ``power`` is None where the slot stayed zero, or is no power of the factor; ``because`` says which. ``fresh`` is
    None where initial values are not all the same. ``is_per_leaf``: the power holds for one factor of a whole leaf,
    not for arrays of factors. ``not_at`` are sizes of gradients at which it does not hold.
    """

    power: int | None
    is_even: bool
    fresh: float | None
    because: str = ""
    is_per_leaf: bool = False
    not_at: tuple[float, ...] = ()


def settled(survey: OptimizerSurvey, measured: Mapping[LeafPath, Measured]) -> OptimizerSurvey:
    """The survey with what a trial told: powers that the metadata leave open, and initial values.

    A power that is known by the optimizer's kind stays as it is. ``measured`` is by the plain path in the tree. A slot
    that was not measured, because its param has another name in the script, is as the others of its field are, if
    those are all alike.
    """
    fields = _by_field(survey, measured)
    slots: dict[LeafPath, Slot] = {}
    for path, slot in survey.slots.items():
        seen = measured.get(plain_path(path), fields.get(slot.node))
        if seen is None or slot.relation == "hole":
            continue
        new = slot
        if slot.power is None and seen.power is None:
            new = msgspec.structs.replace(
                new, unsure_because=f"tried out, {seen.because}", settled_by=()
            )
        elif slot.power is None:
            new = msgspec.structs.replace(
                new,
                power=seen.power,
                is_even=seen.is_even,
                is_per_leaf=seen.is_per_leaf,
                assumed=seen_at(SIZES, seen.not_at) if seen.not_at else None,
                unsure_because="",
                settled_by=(),
            )
        if (
            seen.fresh is not None
            and not slot.takes_param
            and not _is_close(slot.fresh, seen.fresh)
        ):
            new = msgspec.structs.replace(new, fresh=seen.fresh)
        if new is not slot:
            slots[path] = new
    every = {**survey.slots, **slots}
    unsure = [
        msgspec.structs.replace(u, by_values=False) if slots.keys() & set(u.slots) else u
        for u in survey.unsure
        if not all(every[path].is_settled for path in u.slots)
    ]
    return msgspec.structs.replace(survey, slots=every, unsure=unsure)


def advised(survey: OptimizerSurvey, instead: str) -> OptimizerSurvey:
    """The survey, in which slots that are still unsure are not said to be settled by what has been tried.

    ``instead`` is what would make the trial possible, '' if nothing.
    """
    slots = {
        path: msgspec.structs.replace(
            slot,
            settled_by=tuple(
                filter(None, (instead if way == LIKE_INIT else way for way in slot.settled_by))
            ),
        )
        for path, slot in survey.slots.items()
    }
    return msgspec.structs.replace(survey, slots=slots)


def _by_field(
    survey: OptimizerSurvey, measured: Mapping[LeafPath, Measured]
) -> dict[LeafPath, Measured]:
    """What was seen of all slots of a field alike, by the field's node."""
    nodes = {plain_path(slot.node): slot.node for slot in survey.slots.values()}
    seen: dict[LeafPath, set[Measured]] = {}
    for path, one in measured.items():
        above = (nodes.get(LeafPath(path[:depth])) for depth in range(len(path) + 1))
        for node in filter(None, above):
            seen.setdefault(node, set()).add(one)
    return {node: found.pop() for node, found in seen.items() if len(found) == 1}


def _is_close(known: float | None, seen: float) -> bool:
    """True if two initial values are one, apart from rounding to float32."""
    return known is not None and math.isclose(known, seen, rel_tol=1e-6)


def try_optimizer(optimizer: Optimizer) -> dict[LeafPath, Measured]:
    """Feed the optimizer g, then g/c with params c·p, and compare the slots: the definition of a slot's power.

    Every leaf has a factor of its own, then every element; and that for small, usual and large gradients (see
    ``Trial``). Paths are relative to the optimizer state, and plain. Where gradients are accumulated, slots are waited
    for.

    Raises:
        Exception: whatever the optimizer raises, e.g. because it needs more than gradients.
        ValueError: its params are not known.
    """
    import jax

    if optimizer.params is None:
        raise ValueError("no params are returned that its state fits; return the model beside it")

    with jax.default_device(jax.devices("cpu")[0]):
        trial = Trial(optimizer.transformation, optimizer.params)
        runs = [trial.runs(size) for size in SIZES]
        found = {path: _measured(path, trial, runs) for path in runs[0].plain.last}
        waiting = [p for p, one in found.items() if one.power is None and _is_idle(p, runs[0])]
        later = trial.first_step_with(waiting)
        if later is not None:
            runs = [trial.runs(size, later) for size in SIZES]
            found.update((path, _measured(path, trial, runs)) for path in waiting)
    return found


def _is_idle(path: LeafPath, runs: Runs) -> bool:
    return not runs.plain.last[path].any()


def _measured(path: LeafPath, trial: Trial, every: list[Runs]) -> Measured:
    """What the runs with gradients of all sizes show of one slot."""
    fresh = _fresh(path, every[0])
    param = param_of(path, trial.params)
    if param is None:
        return Measured(None, False, fresh, "it belongs to no param alone")
    seen = [_seen(path, param, runs) for runs in every]
    held = next((one for one in seen[:-1] if one.power is not None), None)
    if held is None:  # what holds under the largest gradients alone is as good as nothing
        return Measured(None, False, fresh, seen[0].because)
    other = (one.power != held.power or one.is_even != held.is_even for one in seen)
    failed = tuple(size for size, differs in zip(SIZES, other, strict=True) if differs)
    per_leaf = any(one.is_per_leaf for one in seen)
    return Measured(held.power, held.is_even, fresh, is_per_leaf=per_leaf, not_at=failed)


def _fresh(path: LeafPath, runs: Runs) -> float | None:
    """The initial value, where it is one number whatever the params are."""
    starts = [run.first[path] for run in (runs.plain, *runs.numbers)]
    if not starts[0].size:
        return None
    first = float(starts[0].flat[0])
    return first if all((start == first).all() for start in starts) else None


def _seen(path: LeafPath, param: LeafPath, runs: Runs) -> Measured:
    """What the runs with gradients of one size show."""
    import numpy as np

    base = runs.plain.last[path]
    starts = [run.first[path] for run in (runs.plain, *runs.numbers)]
    # where a start other than zero is mixed in, what is seen is not the slot's own power
    if starts[0].any() and all((start == starts[0]).all() for start in starts):
        return Measured(None, False, None, "its start, which is not zero, is mixed in")
    if not base.size or not base.all() or not np.isfinite(base).all():
        return Measured(None, False, None, "it stayed zero, or did not stay finite")
    for power in _POWERS:
        for is_even in (False, True):
            if all(_follows(path, param, power, is_even, base, run) for run in runs.numbers):
                whole = all(_follows(path, param, power, is_even, base, run) for run in runs.arrays)
                return Measured(power, is_even, None, is_per_leaf=not whole)
    return Measured(None, False, None, "it follows no power of a factor of its own param alone")


def _follows(
    path: LeafPath, param: LeafPath, power: int, is_even: bool, base: Any, run: Run
) -> bool:
    """True if the slot is what the power makes of it; one of another shape than its param follows no array."""
    import numpy as np

    factor = run.factors[param].astype(np.float64)
    if factor.ndim and factor.shape != base.shape:
        return False
    wanted = base * np.abs(factor) ** power * (1 if is_even else np.sign(factor))
    return bool((np.abs(run.last[path] - wanted) <= _TOLERANCE * np.abs(wanted)).all())
