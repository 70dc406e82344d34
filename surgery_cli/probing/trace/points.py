"""The equations of a traced computation in the order of execution, those inside loops and branches too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from surgery_cli.probing.model.sites import Label, label_of

INLINED: Final = {
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

CUSTOM: Final = {"custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr"}
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
        for held, around in inner(equation, at):
            inside = hidden or ("" if is_opened(equation) else equation.primitive.name)
            yield from points(held, inner_at, (*scopes, *around), inside)
            inner_at += size(held)
        at += size_of(equation)


def tags(jaxpr: Jaxpr) -> list[Point]:
    """The points that are tags."""
    return [point for point in points(jaxpr) if label_of(point.equation) is not None]


def size(jaxpr: Jaxpr) -> int:
    """How many equations there are, those inside others included."""
    return sum(map(size_of, jaxpr.eqns))


def size_of(equation: Any) -> int:
    """One, and how many equations there are inside it."""
    return 1 + sum(size(held) for held, _ in inner(equation, 0))


def is_opened(equation: Any) -> bool:
    """True for equations that hold a computation in which points can be observed."""
    name = equation.primitive.name
    return name in INLINED or name in CUSTOM or name in ("scan", "cond")


def inner(equation: Any, at: int) -> list[tuple[Jaxpr, tuple[Scope, ...]]]:
    """The computations inside an equation, each with the scope that it opens."""
    name, params = equation.primitive.name, equation.params
    if name in INLINED:
        return [(opened(params[INLINED[name]]), ())]
    if name in CUSTOM:
        return [(opened(params[CUSTOM[name]]), (Scope(at, has_own_gradient=True),))]
    if name == "scan":
        scope = Scope(at, params["length"], bool(params["reverse"]))
        return [(opened(params["jaxpr"]), (scope,))]
    if name == "cond":
        return [(opened(branch), (Scope(at),)) for branch in params["branches"]]
    entries = [
        entry
        for value in params.values()
        for entry in (value if isinstance(value, list | tuple) else [value])
    ]
    return [(opened(entry), ()) for entry in entries if isinstance(entry, Jaxpr | ClosedJaxpr)]


def inner_computations(equation: Any, at: int) -> list[ClosedJaxpr]:
    """The computations inside an equation, each with its constants."""
    if equation.primitive.name == "cond":
        return list(equation.params["branches"])
    name = {**INLINED, **CUSTOM, "scan": "jaxpr"}.get(equation.primitive.name)
    if name is None:
        return [ClosedJaxpr(held, []) for held, _ in inner(equation, at)]
    body = equation.params[name]
    return [body if isinstance(body, ClosedJaxpr) else ClosedJaxpr(body, [])]


def opened(jaxpr: Any) -> Jaxpr:
    return jaxpr.jaxpr if isinstance(jaxpr, ClosedJaxpr) else jaxpr


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
    if name in INLINED:
        return used_inputs(opened(equation.params[INLINED[name]]))
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
