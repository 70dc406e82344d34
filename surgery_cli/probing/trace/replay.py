"""Evaluates a traced computation again, and observes chosen equations on the way, inside loops and branches too."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from surgery_cli.probing.trace.points import (
    CUSTOM,
    INLINED,
    Point,
    is_opened,
    opened,
    size,
    size_of,
)


def _constants(jaxpr: Any) -> list[Any]:
    return jaxpr.consts if isinstance(jaxpr, ClosedJaxpr) else []


Values = dict[int, Any]
"""What was observed, by position: pairs of "was executed" (bool) and the observation, stacked along loops."""

Observe = Callable[[Point, list[Any], list[Any], Any], tuple[list[Any], Any]]
"""``(point, inputs, outputs, feed) -> (outputs, observation)``; an equation's outputs may be replaced."""


class Replay:
    """Evaluates ``jaxpr`` and calls ``observe`` at the wanted points."""

    def __init__(self, wanted: list[Point], observe: Observe) -> None:
        self._wanted = {point.position: point for point in wanted if not point.hidden_in}
        self._positions = sorted(self._wanted)
        self._observe = observe

    def __call__(
        self, jaxpr: ClosedJaxpr, args: list[Any], feeds: Mapping[int, Any] | None = None
    ) -> tuple[list[Any], Values]:
        """The outputs of ``jaxpr`` and what was observed.

        ``feeds`` gives ``observe`` a value at a position, stacked along the loops around it.
        """
        return self._run(jaxpr.jaxpr, jaxpr.consts, 0, args, dict(feeds or {}))

    def _run(
        self, jaxpr: Jaxpr, consts: list[Any], start: int, args: list[Any], feeds: dict[int, Any]
    ) -> tuple[list[Any], Values]:
        known: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
        known.update(zip(jaxpr.invars, args, strict=True))
        values: Values = {}
        at = start
        for equation in jaxpr.eqns:
            inputs = [v.val if isinstance(v, Literal) else known[v] for v in equation.invars]
            outputs, seen = self._step(equation, at, inputs, feeds)
            point = self._wanted.get(at)
            if point is not None:
                outputs, observed = self._observe(point, inputs, outputs, feeds.get(at))
                seen[at] = (jnp.ones((), bool), observed)
            values.update(seen)
            known.update(zip(equation.outvars, outputs, strict=True))
            at += size_of(equation)
        outs = [v.val if isinstance(v, Literal) else known[v] for v in jaxpr.outvars]
        return outs, values

    def _step(
        self, equation: Any, at: int, inputs: list[Any], feeds: dict[int, Any]
    ) -> tuple[list[Any], Values]:
        """One equation; those that hold wanted points are opened."""
        count = size_of(equation) - 1
        if not count or not self._wants(at + 1, at + 1 + count) or not is_opened(equation):
            return bind(equation, inputs), {}
        name = equation.primitive.name
        if name == "scan":
            return self._scan(equation, at + 1, inputs, feeds)
        if name == "cond":
            return self._cond(equation, at + 1, inputs, feeds)
        if name in CUSTOM:
            # The rule stays with the outputs; what is observed inside has no part in any gradient.
            still = [jax.lax.stop_gradient(value) for value in inputs]
            body = equation.params[CUSTOM[name]]
            _, seen = self._run(opened(body), _constants(body), at + 1, still, feeds)
            return bind(equation, inputs), seen
        body = equation.params[INLINED[name]]
        inside = self._feeds_in(feeds, at + 1, count)
        run = partial(self._run, opened(body), _constants(body), at + 1)
        if "policy" in equation.params:
            keep = {k: equation.params[k] for k in ("prevent_cse", "policy")}
            run = jax.checkpoint(run, **keep)
        return run(inputs, inside)

    def _scan(
        self, equation: Any, at: int, inputs: list[Any], feeds: dict[int, Any]
    ) -> tuple[list[Any], Values]:
        params = equation.params
        body, held, carried = params["jaxpr"], params["num_consts"], params["num_carry"]
        consts, carry = inputs[:held], inputs[held : held + carried]
        inside = self._feeds_in(feeds, at, size(body.jaxpr))

        def step(state: list[Any], entry: Any) -> Any:
            xs, fed = entry
            outs, seen = self._run(body.jaxpr, body.consts, at, [*consts, *state, *xs], fed)
            return outs[:carried], (outs[carried:], seen)

        state, (stacked, seen) = jax.lax.scan(
            step,
            carry,
            (inputs[held + carried :], inside),
            length=params["length"],
            reverse=params["reverse"],
            unroll=params["unroll"],
        )
        return [*state, *stacked], seen

    def _cond(
        self, equation: Any, at: int, inputs: list[Any], feeds: dict[int, Any]
    ) -> tuple[list[Any], Values]:
        """Each branch gives what it observed, and zeros for what the others would have."""
        runs, fed, expected = [], [], []
        for branch in equation.params["branches"]:
            inside = self._feeds_in(feeds, at, size(branch.jaxpr))
            run = partial(self._run, branch.jaxpr, branch.consts, at)
            runs.append(run)
            fed.append(inside)
            expected.append(jax.eval_shape(run, inputs[1:], inside)[1])
            at += size(branch.jaxpr)

        def made(chosen: int) -> Callable[..., Any]:
            def run(args: list[Any], all_fed: list[Any]) -> Any:
                outs, seen = runs[chosen](args, all_fed[chosen])
                others = [
                    jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
                    for other, shapes in enumerate(expected)
                    if other != chosen
                ]
                for other in others:
                    seen.update(other)
                return outs, seen

            return run

        branches = [made(chosen) for chosen in range(len(runs))]
        outs, seen = jax.lax.switch(inputs[0].astype(int), branches, inputs[1:], fed)
        return outs, seen

    def _feeds_in(self, feeds: dict[int, Any], start: int, count: int) -> dict[int, Any]:
        return {at: feed for at, feed in feeds.items() if start <= at < start + count}

    def _wants(self, start: int, end: int) -> bool:
        found = bisect_left(self._positions, start)
        return found < len(self._positions) and self._positions[found] < end


def bind(equation: Any, inputs: list[Any]) -> list[Any]:
    """The outputs of one equation, as it stands."""
    params, functions = equation.primitive.get_bind_params(equation.params), ()
    if isinstance(params, tuple):  # before JAX 0.10: functions apart
        functions, params = params
    with equation.ctx.manager:
        outs = equation.primitive.bind(*functions, *inputs, **params)
    return list(outs) if equation.primitive.multiple_results else [outs]
