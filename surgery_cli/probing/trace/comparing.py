"""Two runs on one batch, compared call by call inside one compiled function."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import msgspec
import numpy as np

from surgery_cli.probing.model.calls import Slot
from surgery_cli.probing.model.models import Trace
from surgery_cli.probing.trace.forward import arguments, by_slot, slot_key
from surgery_cli.probing.trace.gradients import Backward, divided
from surgery_cli.probing.trace.pairing import Half, Pairs
from surgery_cli.probing.trace.points import Point
from surgery_cli.probing.trace.replay import Replay
from surgery_cli.probing.trace.statistics import is_numeric
from surgery_cli.script.process_state import without_checks

NOISE: Final = 1e-6
"""Values this much smaller than the run's largest are noise: they are not compared with each other alone."""

TOLERANCES: Final = {"float32": 1e-5, "bfloat16": 2e-2, "float16": 2e-3}

_LEAST_MOVE: Final = 0.01
_SURPRISE: Final = -math.log(1e-3)


class Deviation(msgspec.Struct, frozen=True):
    """How far two arrays are apart.

    ``relative`` is the norm of the difference over the larger of both norms; ``max_abs`` the largest difference of
    single values; ``rms_a`` and ``rms_b`` are root mean squares.
    """

    relative: float
    max_abs: float
    rms_a: float
    rms_b: float


class OutputDeviation(Deviation, frozen=True, kw_only=True):
    """Of an output: how many of its ``size`` values ``moved`` by more than ``move`` of themselves."""

    moved: int
    size: int
    move: float

    @property
    def hides_a_change(self) -> bool:
        """True if small values moved beside large ones, which alone make the norm.

        Rounding moves small values too, those that are what large ones leave of each other: noise of ``relative`` moves
        about ``relative / move`` of the values so far. Four times as many are let be, and what of them may be chance,
        by Chernoff's bound for rare events.
        """
        expected = max(4 * self.size * self.relative / self.move, 1e-300)
        if self.moved <= expected:
            return False
        return self.moved * math.log(self.moved / expected) - self.moved + expected > _SURPRISE


class Run(msgspec.Struct, frozen=True):
    """One side: a trace, with the variables that it needs."""

    trace: Trace
    variables: dict[Slot, Any]


def default_tolerance(dtypes: Sequence[str]) -> float:
    """The tolerance of the coarsest of the floating dtypes that take part."""
    return max((TOLERANCES.get(dtype, 1e-5) for dtype in dtypes), default=1e-5)


def compare_runs(
    a: Run, b: Run, arrays: Sequence[Any], pairs: Pairs, tolerance: float
) -> tuple[list[Deviation], list[OutputDeviation] | None]:
    """The deviation of each pair in order, and of each output; None for outputs that do not correspond.

    A value moved that changed by more than ``tolerance`` of itself, and by more than a hundredth.

    Everything is compared on the device; only the deviations are returned.
    """
    move = max(tolerance, _LEAST_MOVE)

    def run(held_a: dict[str, Any], held_b: dict[str, Any], inputs: list[Any]) -> Any:
        out_a, seen_a = _captured(a.trace, [h for h, _ in pairs.both], held_a, inputs)
        out_b, seen_b = _captured(b.trace, [h for _, h in pairs.both], held_b, inputs)
        sites = [_distance(_of(seen_a, left), _of(seen_b, right)) for left, right in pairs.both]
        outputs = None
        if [o.shape for o in out_a] == [o.shape for o in out_b]:
            outputs = [
                (_distance(x, y), _moved(x, y, move), x.size)
                for x, y in zip(out_a, out_b, strict=True)
                if is_numeric(x.dtype) and is_numeric(y.dtype)
            ]
        return sites, outputs

    sites, outputs = jax.device_get(
        jax.jit(run)(by_slot(a.variables), by_slot(b.variables), list(arrays))
    )
    return (
        _above_noise(sites),
        None
        if outputs is None
        else [
            OutputDeviation(
                *msgspec.structs.astuple(_deviation(found, 0.0)),
                moved=int(moved),
                size=int(size),
                move=move,
            )
            for found, moved, size in outputs
        ],
    )


@without_checks()
def compare_gradients(
    a: Run,
    b: Run,
    arrays: Sequence[Any],
    loss: Callable[[Any], Any],
    pairs: Sequence[tuple[Half, Half]],
    variables: Sequence[tuple[Slot, Slot]],
) -> tuple[list[Deviation], list[Deviation]]:
    """The deviation of the gradients of ``loss`` at each pair of calls, and of each pair of variables.

    Every call must be one that can have a gradient.
    """
    sides = [
        Backward(run.trace, {h.site.point.position for h in halves})
        for run, halves in ((a, [left for left, _ in pairs]), (b, [right for _, right in pairs]))
    ]

    def run(trained: Any, fixed: Any, inputs: list[Any]) -> Any:
        (_, of_a, at_a), (_, of_b, at_b) = (
            backward(t, f, inputs, loss)
            for backward, t, f in zip(sides, trained, fixed, strict=True)
        )
        return (
            [_distance(_of(at_a, left), _of(at_b, right)) for left, right in pairs],
            [_distance(of_a[slot_key(left)], of_b[slot_key(right)]) for left, right in variables],
        )

    divided_a, divided_b = divided(a.variables), divided(b.variables)
    trained, fixed = (list(map(by_slot, both)) for both in zip(divided_a, divided_b, strict=True))
    sites, params = jax.device_get(jax.jit(run)(trained, fixed, list(arrays)))
    return _above_noise(sites), _above_noise(params)


def _above_noise(found: Sequence[Any]) -> list[Deviation]:
    """Deviations, relative to no less than what is noise beside the largest of all."""
    largest = max((float(max(each[1], each[2])) for each in found), default=0.0)
    return [_deviation(each, NOISE * largest) for each in found]


def _captured(
    trace: Trace, halves: Sequence[Half], held: dict[str, Any], inputs: list[Any]
) -> tuple[list[Any], dict[int, Any]]:
    points: dict[int, Point] = {h.site.point.position: h.site.point for h in halves}

    def observe(_: Point, __: Any, outputs: list[Any], ___: Any) -> tuple[list[Any], Any]:
        return outputs, outputs[0]

    outputs, seen = Replay(list(points.values()), observe)(
        trace.closed, arguments(trace, held, inputs)
    )
    # an output that does not depend on the call may be a bare number
    return list(map(jnp.asarray, outputs)), {at: value for at, (_, value) in seen.items()}


def _of(seen: dict[int, Any], half: Half) -> Any:
    value = seen[half.site.point.position]
    return value if half.iteration is None else value[half.iteration]


def _distance(a: Any, b: Any) -> Any:
    """Root mean squares of the difference and of both sides, and the largest difference: float32[4].

    Equal values have no difference, infinities and NaN among them; where only one side is not finite it is infinite.
    """
    a, b, difference = _apart(a, b)
    return jnp.stack(
        [_rms(difference), _rms(jnp.where(jnp.isfinite(a), a, 0)),
         _rms(jnp.where(jnp.isfinite(b), b, 0)), difference.max(initial=0)]
    )  # fmt: skip


def _moved(a: Any, b: Any, move: float) -> Any:
    """How many values are apart by more than ``move`` of the larger of both."""
    a, b, difference = _apart(a, b)
    return (difference > move * jnp.maximum(jnp.abs(a), jnp.abs(b))).sum()


def _apart(a: Any, b: Any) -> tuple[Any, Any, Any]:
    """Both sides as float32, parts of complex numbers side by side, and by how much their values are apart."""
    if jnp.issubdtype(a.dtype, jnp.complexfloating) or jnp.issubdtype(b.dtype, jnp.complexfloating):
        a = jnp.stack([jnp.real(a), jnp.imag(a)])
        b = jnp.stack([jnp.real(b), jnp.imag(b)])
    a, b = a.astype(jnp.float32), b.astype(jnp.float32)
    is_same = (a == b) | (jnp.isnan(a) & jnp.isnan(b))
    difference = jnp.where(is_same, 0, a - b)
    return a, b, jnp.where(jnp.isnan(difference), jnp.inf, jnp.abs(difference))


def _rms(x: Any) -> Any:
    """The root mean square, scaled by the largest magnitude so that squares do not overflow."""
    scale = jnp.maximum(jnp.abs(x).max(initial=0), jnp.finfo(jnp.float32).tiny)
    mean = ((x / scale) ** 2).sum() / max(x.size, 1)
    return jnp.where(jnp.isinf(scale), jnp.inf, scale * jnp.sqrt(mean))


def _deviation(found: Any, floor: float) -> Deviation:
    apart, rms_a, rms_b, max_abs = (float(value) for value in np.asarray(found))
    scale = max(rms_a, rms_b, floor)
    relative = 0.0 if apart == 0 else apart / scale if scale else float("inf")
    return Deviation(relative, max_abs, rms_a, rms_b)
