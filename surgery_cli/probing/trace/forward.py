"""One run of a traced call with every tag observed; only statistics and what was asked for leave the device."""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np

from surgery_cli.probing.model.calls import Slot
from surgery_cli.probing.model.models import Trace
from surgery_cli.probing.model.sites import Label
from surgery_cli.probing.trace.points import Point, tags, used_inputs
from surgery_cli.probing.trace.replay import Replay
from surgery_cli.probing.trace.statistics import Measured, bad_counts, is_numeric, measure, together


class Site(msgspec.Struct, frozen=True):
    """A tag with the number of its call: the n-th time (from 1) that this array of this method passes by."""

    point: Point
    label: Label
    call: int

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.point.equation.outvars[0].aval.shape)

    @property
    def dtype(self) -> Any:
        return self.point.equation.outvars[0].aval.dtype

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def name(self) -> str:
        """The place as people read it, unique within one trace: a second call is ``Dense_0 (2)``."""
        inward = " (input)" if self.label.role == "in" else ""
        return self.label.text + inward + (f" ({self.call})" if self.call > 1 else "")


def sites_of(trace: Trace) -> list[Site]:
    """Every tag of the trace in the order of execution, those that cannot be observed included."""
    counts: dict[str, int] = {}
    found = []
    for point in tags(trace.closed.jaxpr):
        label = point.label
        place = (
            f"{label.role} {label.text}"  # modules that share a scope are of two kinds in one place
        )
        counts[place] = counts.get(place, 0) + 1
        found.append(Site(point, label, counts[place]))
    return found


class Seen(msgspec.Struct, frozen=True):
    """What was observed at a site, per iteration of the loops around it.

    ``ran``: bool[loops]; ``counts``: NaN and infinities, int[loops, 2]; ``measured`` is over everything that ran, None
    where statistics were not asked for; ``values``: the array itself, [loops, …], if asked for.
    """

    site: Site
    ran: np.ndarray
    counts: np.ndarray
    measured: Measured | None = None
    values: np.ndarray | None = None


class Forward(msgspec.Struct, frozen=True):
    """The results of a run: what was seen at each site by its position, the outputs, and bad variables and inputs."""

    seen: dict[int, Seen]
    outputs: list[np.ndarray]
    bad_variables: dict[Slot, tuple[int, int]]
    """NaN and infinities of those that have any."""
    bad_inputs: dict[int, tuple[int, int]]


def used_slots(trace: Trace) -> list[Slot]:
    """The variables that the computation needs."""
    used = used_inputs(trace.closed.jaxpr)
    return [slot for slot, is_used in zip(trace.slots, used, strict=False) if is_used]


def run_forward(
    trace: Trace,
    variables: dict[Slot, Any],
    arrays: Sequence[Any],
    *,
    shown: Collection[int] = (),
    captured: Collection[int] = (),
) -> Forward:
    """Run the trace once, compiled.

    ``shown`` are positions that get statistics, ``captured`` those whose values are returned; ``variables``
    holds those that the computation needs.
    """
    sites = {s.point.position: s for s in sites_of(trace) if is_observable(s)}
    run = _compiled(trace, frozenset(shown), frozenset(captured))
    outputs, seen, bad, bad_inputs = run(by_slot(variables), list(arrays))
    return Forward(
        {at: _seen(sites[at], jax.device_get(entry)) for at, entry in seen.items()},
        [
            np.asarray(o) if is_numeric(o.dtype) else np.asarray(jax.random.key_data(o))
            for o in outputs
        ],
        {
            slot: _pair(bad[slot_key(slot)])
            for slot in variables
            if np.any(bad.get(slot_key(slot), 0))
        },
        {at: _pair(count) for at, count in enumerate(bad_inputs) if np.any(count)},
    )


@functools.lru_cache(maxsize=4)
def _compiled(trace: Trace, shown: frozenset[int], captured: frozenset[int]) -> Any:
    """The run as a compiled function; two checkpoints of one model share it."""
    points = [site.point for site in sites_of(trace) if is_observable(site)]

    def observe(point: Point, _: Any, outputs: list[Any], __: Any) -> tuple[list[Any], Any]:
        value = outputs[0]
        seen: dict[str, Any] = {"bad": bad_counts(value)}
        if point.position in shown:
            seen["floats"], seen["counts"] = measure(value)
        if point.position in captured:
            seen["values"] = value
        return outputs, seen

    replay = Replay(points, observe)

    def run(held: dict[str, Any], inputs: list[Any]) -> Any:
        outputs, seen = replay(trace.closed, arguments(trace, held, inputs))
        bad = {name: bad_counts(value) for name, value in held.items() if is_numeric(value.dtype)}
        return outputs, seen, bad, [bad_counts(value) for value in inputs]

    return jax.jit(run)


def is_observable(site: Site) -> bool:
    return not site.point.hidden_in and is_numeric(site.dtype)


def slot_key(slot: Slot) -> str:
    """A key for a dict of variables, as JAX wants text to sort by."""
    return "\0".join((slot[0], *slot[1]))


def by_slot(variables: dict[Slot, Any]) -> dict[str, Any]:
    return {slot_key(slot): value for slot, value in variables.items()}


def arguments(trace: Trace, held: dict[str, Any], inputs: Sequence[Any]) -> list[Any]:
    """The flat arguments of the trace; what the computation does not need is a zero that nothing looks at."""
    avals = trace.closed.in_avals
    leaves = [
        held[slot_key(slot)]
        if slot_key(slot) in held
        else jax.lax.stop_gradient(_placeholder(aval))
        for slot, aval in zip(trace.slots, avals, strict=False)
    ]
    return [*leaves, *inputs]


def _placeholder(aval: Any) -> Any:
    if is_numeric(aval.dtype):
        return jnp.zeros(aval.shape, aval.dtype)
    return jnp.broadcast_to(jax.random.key(0), aval.shape)


def _pair(count: Any) -> tuple[int, int]:
    nan, inf = np.asarray(count)
    return int(nan), int(inf)


def _seen(site: Site, entry: Any) -> Seen:
    ran, found = entry
    ran = np.asarray(ran)
    measured = None
    if "floats" in found:
        rows = ran.reshape(-1)
        floats = np.asarray(found["floats"]).reshape(-1, found["floats"].shape[-1])[rows]
        counts = np.asarray(found["counts"]).reshape(-1, found["counts"].shape[-1])[rows]
        measured = together(floats, counts, site.size) if len(floats) else None
    return Seen(site, ran, np.asarray(found["bad"]), measured, found.get("values"))
