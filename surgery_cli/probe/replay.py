"""Evaluates a traced computation again, and observes chosen equations on the way, inside loops and branches too."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import jax
import jax.numpy as jnp
import msgspec
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from surgery_cli.probe.sites import Label, label_of

_INLINED: Final = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "call": "call_jaxpr",
    "remat": "jaxpr",
    "checkpoint": "jaxpr",
    "remat2": "jaxpr",
}
"""Primitives that run an inner computation once, with the name of the parameter that holds it."""

_CUSTOM: Final = {"custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr"}
"""The same, with a differentiation rule that belongs to the outside."""


class Scope(msgspec.Struct, frozen=True):
    """A loop or branch around a point: its own position, and for a loop its length (0 for a branch)."""

    position: int
    length: int = 0
    is_reversed: bool = False
    has_own_gradient: bool = False
    """True for functions with a derivative of their own, in which gradients are not observed."""


class Point(msgspec.Struct, frozen=True):
    """An equation, with its position in a walk through all computations in their order, and what stands around it.

    ``hidden_in`` names the primitive inside which it cannot be observed; '' if it can.
    """

    position: int
    equation: Any
    scopes: tuple[Scope, ...] = ()
    hidden_in: str = ""

    @property
    def label(self) -> Label:
        """The label of a tag; only for tags."""
        found = label_of(self.equation)
        assert found is not None
        return found

    @property
    def lengths(self) -> tuple[int, ...]:
        """The lengths of the loops around it: the leading axes of everything observed here."""
        return tuple(scope.length for scope in self.scopes if scope.length)

    def order(self, iteration: tuple[int, ...]) -> tuple[int, ...]:
        """Sorts observations by time: ``iteration`` gives the iteration of each loop around the point."""
        key: list[int] = []
        left = list(iteration)
        for scope in self.scopes:
            at = 0
            if scope.length:
                at = left.pop(0)
                at = scope.length - 1 - at if scope.is_reversed else at
            key += [scope.position, at]
        return (*key, self.position)


def points(
    jaxpr: Jaxpr, start: int = 0, scopes: tuple[Scope, ...] = (), hidden: str = ""
) -> Iterator[Point]:
    """Every equation of ``jaxpr`` and of the computations inside it, in the order of execution."""
    at = start
    for equation in jaxpr.eqns:
        yield Point(at, equation, scopes, hidden)
        inner_at = at + 1
        for inner, around in _inner(equation, at):
            inside = hidden or ("" if is_opened(equation) else equation.primitive.name)
            yield from points(inner, inner_at, (*scopes, *around), inside)
            inner_at += size(inner)
        at += 1 + sum(size(inner) for inner, _ in _inner(equation, at))


def tags(jaxpr: Jaxpr) -> list[Point]:
    """The points that are tags."""
    return [point for point in points(jaxpr) if label_of(point.equation) is not None]


def size(jaxpr: Jaxpr) -> int:
    """How many equations there are, those inside others included."""
    return sum(1 + sum(size(inner) for inner, _ in _inner(e, 0)) for e in jaxpr.eqns)


def is_opened(equation: Any) -> bool:
    """True for equations that hold a computation in which points can be observed."""
    name = equation.primitive.name
    return name in _INLINED or name in _CUSTOM or name in ("scan", "cond")


def _inner(equation: Any, at: int) -> list[tuple[Jaxpr, tuple[Scope, ...]]]:
    """The computations inside an equation, each with the scope that it opens."""
    name, params = equation.primitive.name, equation.params
    if name in _INLINED:
        return [(_open(params[_INLINED[name]]), ())]
    if name in _CUSTOM:
        return [(_open(params[_CUSTOM[name]]), (Scope(at, has_own_gradient=True),))]
    if name == "scan":
        scope = Scope(at, params["length"], bool(params["reverse"]))
        return [(_open(params["jaxpr"]), (scope,))]
    if name == "cond":
        return [(_open(branch), (Scope(at),)) for branch in params["branches"]]
    entries = [
        entry
        for value in params.values()
        for entry in (value if isinstance(value, list | tuple) else [value])
    ]
    return [(_open(entry), ()) for entry in entries if isinstance(entry, Jaxpr | ClosedJaxpr)]


def inner_computations(equation: Any, at: int) -> list[ClosedJaxpr]:
    """The computations inside an equation, each with its constants."""
    if equation.primitive.name == "cond":
        return list(equation.params["branches"])
    name = {**_INLINED, **_CUSTOM, "scan": "jaxpr"}.get(equation.primitive.name)
    if name is None:
        return [ClosedJaxpr(inner, []) for inner, _ in _inner(equation, at)]
    body = equation.params[name]
    return [body if isinstance(body, ClosedJaxpr) else ClosedJaxpr(body, [])]


def _open(jaxpr: Any) -> Jaxpr:
    return jaxpr.jaxpr if isinstance(jaxpr, ClosedJaxpr) else jaxpr


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
            at += 1 + sum(size(inner) for inner, _ in _inner(equation, at))
        outs = [v.val if isinstance(v, Literal) else known[v] for v in jaxpr.outvars]
        return outs, values

    def _step(
        self, equation: Any, at: int, inputs: list[Any], feeds: dict[int, Any]
    ) -> tuple[list[Any], Values]:
        """One equation; those that hold wanted points are opened."""
        inner = sum(size(jaxpr) for jaxpr, _ in _inner(equation, at))
        if not inner or not self._wants(at + 1, at + 1 + inner) or not is_opened(equation):
            return bind(equation, inputs), {}
        name = equation.primitive.name
        if name == "scan":
            return self._scan(equation, at + 1, inputs, feeds)
        if name == "cond":
            return self._cond(equation, at + 1, inputs, feeds)
        if name in _CUSTOM:
            # The rule stays with the outputs; what is observed inside has no part in any gradient.
            still = [jax.lax.stop_gradient(value) for value in inputs]
            body = equation.params[_CUSTOM[name]]
            _, seen = self._run(_open(body), _constants(body), at + 1, still, feeds)
            return bind(equation, inputs), seen
        body = equation.params[_INLINED[name]]
        inside = self._feeds_in(feeds, at + 1, inner)
        run = partial(self._run, _open(body), _constants(body), at + 1)
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


def used_inputs(jaxpr: Jaxpr) -> list[bool]:
    """Which inputs of ``jaxpr`` any equation or output needs, looking into inner computations."""
    needed = {v for v in jaxpr.outvars if not isinstance(v, Literal)}
    for equation in jaxpr.eqns:
        needed.update(
            v
            for v, used in zip(equation.invars, _used_by(equation), strict=True)
            if used and not isinstance(v, Literal)
        )
    return [v in needed for v in jaxpr.invars]


def _used_by(equation: Any) -> list[bool]:
    name = equation.primitive.name
    count = len(equation.invars)
    if name in _INLINED:
        return used_inputs(_open(equation.params[_INLINED[name]]))
    if name == "scan":
        used = used_inputs(equation.params["jaxpr"].jaxpr)
        # A carry may be needed by what follows the loop, even if no step looks at it.
        start = equation.params["num_consts"]
        end = start + equation.params["num_carry"]
        return [u or start <= at < end for at, u in enumerate(used)]
    if name == "cond":
        branches = [used_inputs(branch.jaxpr) for branch in equation.params["branches"]]
        return [True, *(any(column) for column in zip(*branches, strict=True))]
    return [True] * count
