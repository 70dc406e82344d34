"""The script's own optimizer, tried out on tiny params: what becomes of its slots when params are scaled."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from itertools import cycle, islice
from typing import Any, Final

import msgspec

from surgery_cli.optimizer.groups import LIKE_INIT
from surgery_cli.optimizer.slots import Slot
from surgery_cli.optimizer.survey import OptimizerSurvey
from surgery_cli.tree.paths import LeafPath
from surgery_cli.verification.pytrees import plain_path, stored_leaves
from surgery_cli.verification.script_optimizers import Optimizer

_STEPS: Final = 3
_MOST_STEPS: Final = 64
"""How long slots that are still zero are waited for: those behind an accumulation of gradients."""
_GRADIENT: Final = 1e-3
"""Small enough that clipping rests, large enough that no epsilon is felt."""
_TOLERANCE: Final = 0.05
"""How far a measured exponent may lie from a whole number."""


class Measured(msgspec.Struct, frozen=True):
    """What was seen of one slot: its power and parity (see ``Slot``), and its initial value.

    ``power`` is None where the slot stayed zero, or is no power of the factor; ``because`` says which. ``fresh`` is
    None where initial values are not all the same.
    """

    power: int | None
    is_even: bool
    fresh: float | None
    because: str = ""


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
    """Feed the optimizer g, then g/c with params c·p, for c of 1/2, 2 and -1, and compare the slots.

    Every axis of the params is cut to at most two elements; nothing of the checkpoint is read. Paths are relative to
    the optimizer state, and plain. Where gradients are accumulated, slots are waited for. This is the definition of a
    slot's power, whatever stands before it in the chain.

    Raises:
        Exception: whatever the optimizer raises, e.g. because it needs more than gradients.
        ValueError: its params are not known.
    """
    import jax

    if optimizer.params is None:
        raise ValueError("no params are returned that its state fits; return the model beside it")

    with jax.default_device(jax.devices("cpu")[0]):
        params, gradients = _problem(optimizer.params)
        transformation = optimizer.transformation
        update = jax.jit(transformation.update)
        found = _after(_STEPS, transformation.init, update, params, gradients)
        unsure = [path for path, one in found.items() if one.power is None]
        later = _first_step(unsure, transformation.init, update, params, gradients)
        if later is not None:
            more = _after(later, transformation.init, update, params, gradients)
            found.update((path, more[path]) for path in unsure)
    return found


_Leaves = dict[LeafPath, Any]


def _problem(shapes: Any) -> tuple[Any, list[Any]]:
    """Tiny params of the same tree, away from zero, and a gradient for each step."""
    import jax
    import numpy as np

    random = np.random.default_rng(0)

    def drawn(scale: float) -> Any:
        def one(leaf: Any) -> Any:
            size = tuple(min(axis, 2) for axis in leaf.shape)
            values = random.uniform(0.5, 1.5, size) * random.choice([-1.0, 1.0], size) * scale
            return np.asarray(values, np.float32)

        return jax.tree.map(one, shapes)

    return drawn(1.0), [drawn(_GRADIENT) for _ in range(_STEPS)]


def _after(
    steps: int, init: Any, update: Any, params: Any, gradients: list[Any]
) -> dict[LeafPath, Measured]:
    """What is seen of every slot after so many steps."""
    runs: dict[float, tuple[_Leaves, _Leaves]] = {}
    for factor in (1.0, 0.5, 2.0, -1.0):
        first, *_, last = islice(_states(init, update, params, gradients, factor), steps + 1)
        runs[factor] = _numbers(first), _numbers(last)
    return {path: _measured(path, runs) for path in runs[1.0][1]}


def _first_step(
    unsure: Collection[LeafPath], init: Any, update: Any, params: Any, gradients: list[Any]
) -> int | None:
    """The first step after the usual ones at which a slot that was zero then no longer is; None if none ever is."""
    states = islice(_states(init, update, params, gradients, 1.0), _STEPS, _MOST_STEPS + 1)
    numbers = map(_numbers, states)
    usual = next(numbers)
    waiting = [path for path in unsure if not usual[path].any()]
    if not waiting:
        return None
    steps = enumerate(numbers, _STEPS + 1)
    return next((n for n, later in steps if any(later[path].any() for path in waiting)), None)


def _states(
    init: Any, update: Any, params: Any, gradients: list[Any], factor: float
) -> Iterator[Any]:
    """The initial state, and that after each step, under params times ``factor``."""
    import jax
    import numpy as np

    scaled = jax.tree.map(lambda leaf: leaf * np.float32(factor), params)
    state = init(scaled)
    yield state
    for gradient in cycle(gradients):
        divided = jax.tree.map(lambda leaf: leaf / np.float32(factor), gradient)
        _, state = update(divided, state, scaled)
        yield state


def _numbers(state: Any) -> _Leaves:
    import jax
    import numpy as np

    return {
        plain_path(path): leaf
        for path, leaf in stored_leaves(state)
        if isinstance(leaf, jax.Array | np.ndarray) and jax.dtypes.issubdtype(leaf.dtype, np.number)
    }


def _measured(path: LeafPath, runs: Mapping[float, tuple[_Leaves, _Leaves]]) -> Measured:
    import numpy as np

    starts = [np.asarray(first[path], np.float64) for first, _ in runs.values()]
    same = all((start == starts[0].flat[0]).all() for start in starts) if starts[0].size else False
    fresh = float(starts[0].flat[0]) if same else None
    last = {factor: np.asarray(after[path], np.float64) for factor, (_, after) in runs.items()}
    base = last[1.0]
    # where a start other than zero is mixed in, what is seen is not the slot's own power
    is_mixed = any((start == starts[0]).all() and start.any() for start in starts[1:])
    if is_mixed:
        return Measured(None, False, fresh, "its start, which is not zero, is mixed in")
    if not base.size or not base.all() or not np.isfinite(base).all():
        return Measured(None, False, fresh, "it stayed zero, or did not stay finite")
    signs = np.sign(last[-1.0] / base)
    powers = {
        round(float(power), 2)
        for factor in (0.5, 2.0)
        for power in np.ravel(np.log2(np.abs(last[factor] / base)) / np.log2(factor))
    }
    whole = round(next(iter(powers)))
    is_power = all(abs(power - whole) <= _TOLERANCE for power in powers)
    if not is_power or len(set(signs.ravel())) != 1:
        return Measured(None, False, fresh, "it follows no power of a factor of the params")
    return Measured(whole, bool(signs.flat[0] > 0), fresh)
