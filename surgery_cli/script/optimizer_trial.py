"""The script's own optimizer, tried out on tiny params: what becomes of its slots when params are scaled."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import partial
from typing import Final

import msgspec

from surgery_cli.draft.assumptions import Assumption, together
from surgery_cli.script.fading import tried_decays
from surgery_cli.script.leaf_trial import over_leaves
from surgery_cli.script.optimizers import Optimizer
from surgery_cli.script.pytrees import param_of
from surgery_cli.script.slot_powers import (
    HAS_NO_VALUES,
    USUAL,
    Measured,
    held_at,
    initial_value,
    measured_above_starts,
    seen_in,
)
from surgery_cli.script.time_limit import within
from surgery_cli.script.trial_runs import STEPS, Trial
from surgery_cli.tree.paths import LeafPath

MOST_SECONDS: Final = 120
"""A trial of 900 leaves takes about a tenth of it; one that does not end must not keep who waits."""
_SIGNS: Final = (
    "it shows signs, or what was divided by its size, of something that follows no power"
)
_NOT_LATER: Final = "it follows one power in the optimizer's first steps, and none after as many as its counters say"


def try_optimizer(
    optimizer: Optimizer, counters: Mapping[LeafPath, int] | None = None
) -> dict[LeafPath, Measured]:
    """What a trial of the optimizer shows of the slots of its state, if it ends in time; see ``_tried``.

    Raises:
        StillRunning: it does not.
        Exception: as ``_tried``.
    """
    return within(MOST_SECONDS, partial(_tried, optimizer, counters))


def _tried(
    optimizer: Optimizer, counters: Mapping[LeafPath, int] | None
) -> dict[LeafPath, Measured]:
    """Feed the optimizer g, then g/c with params c·p, and compare the slots: the definition of a slot's power.

    Every leaf has a factor of its own, then every element; and that for gradients and params of several sizes (see
    ``Trial``). Paths are relative to the optimizer state, and plain. Where gradients are accumulated, slots are waited
    for. With the ``counters`` of a state, what holds in the first steps must hold after jumps to these as well.

    Raises:
        Exception: whatever the optimizer raises, e.g. because it needs more than gradients.
        ValueError: its params are not known.
    """
    import jax

    if optimizer.params is None:
        raise ValueError("no params are returned that its state fits; return the model beside it")

    with warnings.catch_warnings(), jax.default_device(jax.devices("cpu")[0]):
        # settings that overflow float32 show in the slots
        warnings.simplefilter("ignore", RuntimeWarning)
        trial = Trial(optimizer.transformation, optimizer.params, counters)
        first = trial.runs(USUAL[0].cross)
        fresh = {path: initial_value(starts) for path, starts in first.first.items()}
        started = {path: value for path, value in fresh.items() if value and _is_slot(path, trial)}
        found = {
            path: _measured(path, trial, STEPS, is_beside_start=bool(started))
            for path in fresh
            if path not in started
        }
        waiting = [p for p, one in found.items() if one.power is None and not first.last[p].any()]
        later = trial.first_step_with(waiting)
        if later is not None:
            found.update((path, _measured(path, trial, later)) for path in waiting)
        if trial.jumps:
            late = dict.fromkeys(waiting, later)
            found = {p: _held_after_jumps(p, one, trial, late.get(p)) for p, one in found.items()}
        found |= measured_above_starts(trial, started)
        found = _signs_as_amounts(found, trial)
        decays = tried_decays(trial, [path for path in found if _is_slot(path, trial)])
        leaves = over_leaves(trial)

    def with_rest(path: LeafPath, one: Measured) -> Measured:
        param = param_of(path, trial.params)
        over_leaf = None if param is None else leaves.get(param)
        return msgspec.structs.replace(one, decay=decays.get(path), over_leaf=over_leaf)

    return {path: with_rest(path, one) for path, one in found.items()}


def _signs_as_amounts(found: Mapping[LeafPath, Measured], trial: Trial) -> dict[LeafPath, Measured]:
    """What was seen, with slots of power 0 no surer than the other slots of their param.

    Signs do not tell by how much what reaches them was divided, until a sum of several steps turns one.
    """
    params = {path: param_of(path, trial.params) for path in found}
    divided = {params[path] for path, one in found.items() if one.is_per_leaf}
    unsure = {params[p] for p, one in found.items() if one.power is None and not one.no_values}
    assumed: dict[LeafPath | None, list[Assumption | None]] = {}
    for path, one in found.items():
        if one.power:
            assumed.setdefault(params[path], []).append(one.assumed)

    def told(path: LeafPath, one: Measured) -> Measured:
        if one.power != 0:
            return one
        if params[path] in unsure:
            return Measured(None, False, one.fresh, _SIGNS)
        return msgspec.structs.replace(
            one,
            is_per_leaf=one.is_per_leaf or params[path] in divided,
            assumed=together((one.assumed, *assumed.get(params[path], ()))),
        )

    return {path: told(path, one) for path, one in found.items()}


def _is_slot(path: LeafPath, trial: Trial) -> bool:
    return param_of(path, trial.params) is not None


def _held_after_jumps(path: LeafPath, one: Measured, trial: Trial, later: int | None) -> Measured:
    """What was seen of a slot in its first steps, unless it does not hold where the counters have come to."""
    if one.power is None:
        return one
    seen = _measured(path, trial, later or STEPS, jumping=True)
    if seen.no_values:
        return one
    if seen.rule != one.rule:
        return Measured(None, False, one.fresh, _NOT_LATER)
    assumed = together((one.assumed, seen.assumed))
    is_per_leaf = one.is_per_leaf or seen.is_per_leaf
    return msgspec.structs.replace(one, assumed=assumed, is_per_leaf=is_per_leaf)


def _measured(
    path: LeafPath,
    trial: Trial,
    steps: int,
    *,
    is_beside_start: bool = False,
    jumping: bool = False,
) -> Measured:
    """What the runs with gradients and params of all sizes show of one slot that starts at zero, or at no one number.

    ``is_beside_start``: another slot starts elsewhere, so that a power may hold for as long as that start is felt.
    """
    fresh = initial_value(trial.runs(USUAL[0].cross, steps).first[path])
    param = param_of(path, trial.params)
    if param is None:
        return Measured(None, False, fresh, "it belongs to no param alone")
    nothing = msgspec.structs.replace(HAS_NO_VALUES, fresh=fresh)
    for usual in USUAL:
        seen = seen_in(path, param, usual.cross, trial.runs(usual.cross, steps, jumping=jumping))
        one = seen[usual]
        if one is not None and one.power is not None:
            break
        if one is not None and nothing.no_values:
            nothing = msgspec.structs.replace(one, fresh=fresh)
    else:  # what holds under the largest gradients alone is as good as nothing
        return nothing
    held = held_at(usual, fresh, seen)
    if held.assumed and is_beside_start:
        because = "how it follows hangs on a start, which is not zero, of slots before it"
        return Measured(None, False, fresh, because)
    return held
