"""Traces made of other traces: stopped after a call, or run for every member of an ensemble."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from surgery_cli.probing.model.calls import Collections, Expected
from surgery_cli.probing.model.models import Trace
from surgery_cli.probing.trace.points import Point, inner_computations, size


def cannot_stop_at(point: Point) -> str:
    """What stands around a point so that a run cannot stop there; '' if it can."""
    if point.hidden_in:
        return f"a `{point.hidden_in}`, which cannot be seen inside"
    if any(scope.length for scope in point.scopes):
        times = " × ".join(map(str, point.lengths))
        return f"a loop (`scan`), which runs it {times} times"
    if any(scope.has_own_gradient for scope in point.scopes):
        return "a function with a derivative of its own, which would be lost"
    return ""


def stopped_at(trace: Trace, calls: Sequence[Point]) -> Trace:
    """The computation up to the tags ``calls`` of one call's arrays, which become its output.

    Compiled and rematerialized parts are entered. So are branches: where another one is taken, the outputs are zeros,
    and the tag's observation says that it did not run.
    """
    positions = [point.position for point in calls]
    closed = trace.closed
    cut = jax.make_jaxpr(lambda *args: _up_to(closed, positions, 0, args))(*_specs(closed))
    outputs = calls[0] if len(calls) == 1 else tuple(calls)
    structure = jax.tree_util.tree_structure(jax.tree_util.tree_map(lambda _: 0, outputs))
    return Trace(cut, trace.slots, structure, trace.folder)


def _up_to(closed: ClosedJaxpr, positions: Sequence[int], at: int, args: Sequence[Any]) -> Any:
    """The values at ``positions``; ``at`` is the position of the first equation."""
    stop: list[Any] = []
    for number, equation in enumerate(closed.jaxpr.eqns):
        if at in positions:
            stop += equation.outvars
        if at == positions[-1]:
            return _first(closed, number + 1, stop, args)
        inside = inner_computations(equation, at)
        end = at + 1 + sum(size(inner.jaxpr) for inner in inside)
        if positions[-1] < end:
            inputs = _first(closed, number, equation.invars, args)
            if equation.primitive.name != "cond":
                return _up_to(inside[0], positions, at + 1, inputs)
            return _in_branch(inside, positions, at + 1, inputs)
        at = end
    raise AssertionError(positions)


def _in_branch(
    branches: Sequence[ClosedJaxpr], positions: Sequence[int], at: int, inputs: Sequence[Any]
) -> Any:
    index, *operands = inputs
    runs: list[Any] = []
    chosen = 0
    for branch in branches:
        end = at + size(branch.jaxpr)
        if at <= positions[-1] < end:
            chosen = len(runs)
            runs.append(lambda *args, b=branch, at=at: _up_to(b, positions, at, args))
        else:
            runs.append(None)
        at = end
    shapes = jax.eval_shape(runs[chosen], *operands)

    def nothing(*_: Any) -> Any:
        return [jnp.zeros(s.shape, s.dtype) for s in shapes]

    return jax.lax.switch(index.astype(int), [run or nothing for run in runs], *operands)


def _first(closed: ClosedJaxpr, count: int, wanted: Sequence[Any], args: Sequence[Any]) -> Any:
    """The values of the variables ``wanted`` after the first ``count`` equations, with the user's lines kept."""
    names = closed.jaxpr.debug_info
    part = closed.jaxpr.replace(
        eqns=closed.jaxpr.eqns[:count],
        outvars=list(wanted),
        debug_info=names._replace(result_paths=None),
    )
    return jaxpr_as_fun(ClosedJaxpr(part, closed.consts))(*args)


def _specs(closed: ClosedJaxpr) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in closed.in_avals]


def over_members(trace: Trace, members: int) -> Trace:
    """The computation for each member of an ensemble, one after the other, on the same inputs.

    Every variable gets the members as its first axis, and so does every output.
    """
    own = len(trace.slots)

    def run(*args: Any) -> Any:
        def one(leaves: Sequence[Any]) -> Any:
            return tuple(jaxpr_as_fun(trace.closed)(*leaves, *args[own:]))

        return jax.lax.map(one, args[:own])

    specs = _specs(trace.closed)
    stacked = [jax.ShapeDtypeStruct((members, *s.shape), s.dtype) for s in specs[:own]]
    return Trace(
        jax.make_jaxpr(run)(*stacked, *specs[own:]), trace.slots, trace.structure, trace.folder
    )


def stacked(expected: Collections, members: int) -> Collections:
    """What an ensemble of ``members`` models needs: every variable with the members as its first axis."""
    return _reshaped(expected, lambda shape: (members, *shape))


def of_one(expected: Collections) -> Collections:
    """What one member of an ensemble needs."""
    return _reshaped(expected, lambda shape: shape[1:])


def _reshaped(expected: Collections, shape_of: Any) -> Collections:
    return {
        name: {
            path: Expected(shape_of(wanted.shape), wanted.dtype, wanted.is_optional)
            for path, wanted in paths.items()
        }
        for name, paths in expected.items()
    }
