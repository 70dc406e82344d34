"""The script's own optimizer, tried out on tiny params: what becomes of its slots when params are scaled."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Final

import msgspec

from surgery_cli.draft.assumptions import Assumption, together
from surgery_cli.draft.placeholders import slots_line
from surgery_cli.draft.slots import Slot
from surgery_cli.optimizer.detect.groups import LIKE_INIT
from surgery_cli.optimizer.detect.survey import OptimizerSurvey
from surgery_cli.script.fading import UNCOUNTED, tried_decays
from surgery_cli.script.optimizers import Optimizer
from surgery_cli.script.pytrees import param_of, plain_path
from surgery_cli.script.slot_powers import (
    HAS_NO_VALUES,
    USUAL,
    Measured,
    held_at,
    initial_value,
    measured_above_starts,
    seen_in,
)
from surgery_cli.script.trial_runs import STEPS, Trial
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.advice import InPlan, worded

_SIGNS: Final = (
    "it shows signs, or what was divided by its size, of something that follows no power"
)
_NOT_LATER: Final = "it follows one power in the optimizer's first steps, and none after as many as its counters say"


def settled(survey: OptimizerSurvey, measured: Mapping[LeafPath, Measured]) -> OptimizerSurvey:
    """The survey with what a trial told: powers that the metadata leave open, and initial values.

    A power that is known by the optimizer's kind stays as it is, unless it rests on settings, which a trial shows.
    ``measured`` is by the plain path in the tree. A slot that was not measured, because its param has another name in
    the script, is as the others of its field are, if those are all alike.
    """
    fields = _by_field(survey, measured)
    slots: dict[LeafPath, Slot] = {}
    for path, slot in survey.slots.items():
        seen = measured.get(plain_path(path), fields.get(slot.node))
        if seen is None or slot.relation == "hole":
            continue
        new = slot if seen.decay is None else msgspec.structs.replace(slot, decay=seen.decay)
        is_open = slot.power is None or (rests_on_settings(slot) and not seen.no_values)
        if is_open and seen.power is None:
            new = msgspec.structs.replace(
                new,
                power=None,
                assumed=_of_the_run(slot),
                unsure_because=f"tried out, {seen.because}",
                settled_by=(),
            )
        elif is_open:
            new = new.settled(
                power=seen.power,
                is_even=seen.is_even,
                is_per_leaf=seen.is_per_leaf,
                assumed=together((seen.assumed, _of_the_run(slot))),
                start=None if seen.fadings else seen.fresh if seen.stays else slot.start,
            )
        if (
            seen.fresh is not None
            and not slot.takes_param
            and not _is_close(slot.fresh, seen.fresh)
        ):
            new = msgspec.structs.replace(new, fresh=seen.fresh)
        if new.power is not None and new.start is None:
            new = _started(new, seen)
        if new is not slot:
            slots[path] = new
    every = {**survey.slots, **slots}
    unsure = [
        msgspec.structs.replace(u, by_values=False) if slots.keys() & set(u.slots) else u
        for u in survey.unsure
        if not all(every[path].is_settled for path in u.slots)
    ]
    return msgspec.structs.replace(survey, slots=every, unsure=unsure)


def rests_on_settings(slot: Slot) -> bool:
    """True if a power is known by the kind of the state, for some settings of the optimizer that made it."""
    return (
        slot.power is not None
        and slot.known_by == "disk"
        and slot.assumed is not None
        and not slot.assumed.is_of_the_run
    )


def _of_the_run(slot: Slot) -> Assumption | None:
    """What a slot is taken for that no trial shows."""
    return slot.assumed if slot.assumed is not None and slot.assumed.is_of_the_run else None


def _started(slot: Slot, seen: Measured) -> Slot:
    """A slot whose power is known, with what was seen of its start."""
    if seen.power == slot.power and seen.stays:
        return slot.settled(start=seen.fresh)
    paces = {one.clock: one for one in seen.fadings if seen.power == slot.power}
    clock = next((clock for clock in slot.clocks if plain_path(clock) in paces), None)
    if clock is not None:
        fading = msgspec.structs.replace(paces[plain_path(clock)], clock=clock)
        return msgspec.structs.replace(slot, fading=fading)
    because = seen.start_because or seen.because or UNCOUNTED
    return msgspec.structs.replace(
        slot,
        unsure_because=f"tried out, {because}",
        settled_by=(
            worded("add {}, with S what is left of it", InPlan(slots_line(slot.node, start="S"))),
        ),
    )


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


def try_optimizer(
    optimizer: Optimizer, counters: Mapping[LeafPath, int] | None = None
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
    return {p: msgspec.structs.replace(one, decay=decays.get(p)) for p, one in found.items()}


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
