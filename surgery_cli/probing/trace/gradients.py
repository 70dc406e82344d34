"""Gradients of a loss at every tag and with respect to every variable, without the model's help.

At a tag stands an identity with a derivative of its own: backwards it hands the gradient on unchanged, and hands its
statistics to a second operand, whose gradient they become. It works inside loops and under remat, and no gradient
has to be kept for longer than the backward pass itself needs it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np

from surgery_cli.errors import SurgeryError
from surgery_cli.probing.model.calls import Slot
from surgery_cli.probing.model.models import Trace
from surgery_cli.probing.trace.forward import (
    Site,
    arguments,
    by_slot,
    is_observable,
    sites_of,
    slot_key,
)
from surgery_cli.probing.trace.points import Point
from surgery_cli.probing.trace.replay import Replay
from surgery_cli.probing.trace.statistics import (
    COUNTS,
    FLOATS,
    Measured,
    is_inexact,
    measure,
    together,
)
from surgery_cli.script.process_state import without_checks
from surgery_cli.words.quantities import array_text

_SIZE = len(FLOATS) + len(COUNTS)

Variables = dict[Slot, Any]


class Gradients(msgspec.Struct, frozen=True):
    """The gradients of a loss: statistics at each position and for each variable; ``values`` where captured."""

    loss: float
    sites: dict[int, Measured]
    variables: dict[Slot, Measured]
    values: dict[int, np.ndarray]
    variable_values: dict[Slot, np.ndarray]


def can_have_gradient(site: Site) -> bool:
    """True for values that a loss can depend on, outside functions with a derivative of their own."""
    inside = any(scope.has_own_gradient for scope in site.point.scopes)
    return is_observable(site) and is_inexact(site.dtype) and not inside and site.label.role != "in"


@without_checks()
def run_gradients(
    trace: Trace,
    variables: dict[Slot, Any],
    arrays: Sequence[Any],
    loss: Callable[[Any], Any],
    *,
    captured: Collection[int] = (),
) -> Gradients:
    """Differentiate ``loss(output)`` once, compiled.

    Gradients at the positions ``captured``, and those of all variables if there is any, are returned whole.

    Raises:
        SurgeryError: the loss is no scalar.
    """
    trained, fixed = divided(variables)
    sites = {s.point.position: s for s in sites_of(trace) if can_have_gradient(s)}
    value, by_variable, by_site, whole = jax.device_get(
        _compiled(trace, frozenset(captured), loss)(by_slot(trained), by_slot(fixed), list(arrays))
    )
    measured = {
        at: _measured(sites[at], found) for at, found in by_site.items() if at not in captured
    }
    return Gradients(
        float(value),
        measured,
        {slot: _single(by_variable[slot_key(slot)], trained[slot]) for slot in trained},
        {at: np.asarray(found) for at, found in by_site.items() if at in captured},
        {slot: np.asarray(whole[slot_key(slot)]) for slot in trained} if captured else {},
    )


@functools.lru_cache(maxsize=4)
def _compiled(trace: Trace, captured: frozenset[int], loss: Callable[[Any], Any]) -> Any:
    """The backward pass as a compiled function; two checkpoints of one model share it."""
    backward = Backward(trace, captured)

    def run(trained: dict[str, Any], fixed: dict[str, Any], inputs: list[Any]) -> Any:
        value, by_variable, by_site = backward(trained, fixed, inputs, loss)
        measured = {name: measure(gradient) for name, gradient in by_variable.items()}
        return value, measured, by_site, by_variable if captured else {}

    return jax.jit(run)


def divided(variables: Variables) -> tuple[Variables, Variables]:
    """The variables that are differentiated, and the others."""
    trained = {slot: v for slot, v in variables.items() if is_inexact(v.dtype)}
    return trained, {slot: v for slot, v in variables.items() if slot not in trained}


class Backward:
    """The backward pass of a trace, to be traced itself: statistics at every call, whole gradients where captured."""

    def __init__(self, trace: Trace, captured: Collection[int] = ()) -> None:
        self.sites = {s.point.position: s for s in sites_of(trace) if can_have_gradient(s)}
        self._trace = trace
        self._captured = captured

    def __call__(
        self,
        trained: dict[str, Any],
        fixed: dict[str, Any],
        inputs: list[Any],
        loss: Callable[[Any], Any],
    ) -> tuple[Any, dict[str, Any], dict[int, Any]]:
        """The loss, the gradients of the trained variables, and what was observed at the calls, by position."""
        trace = self._trace
        replay = Replay([site.point for site in self.sites.values()], self._observe)
        feeds = {at: self._feed(site) for at, site in self.sites.items()}

        def scalar(held: dict[str, Any], fed: dict[int, Any]) -> Any:
            flat, _ = replay(trace.closed, arguments(trace, {**held, **fixed}, inputs), fed)
            return loss(jax.tree_util.tree_unflatten(trace.structure, flat))

        value, found = jax.value_and_grad(scalar, argnums=(0, 1))(trained, feeds)
        return value, *found

    def _observe(
        self, point: Point, _: Any, outputs: list[Any], feed: Any
    ) -> tuple[list[Any], Any]:
        return [_tapped(point.position in self._captured, outputs[0], feed)], ()

    def _feed(self, site: Site) -> Any:
        """Zeros in whose place the gradient, or its statistics, comes back."""
        if site.point.position in self._captured:
            return jnp.zeros((*site.point.lengths, *site.shape), site.dtype)
        return jnp.zeros((*site.point.lengths, _SIZE), jnp.float32)


def random_projection(seed: int) -> Callable[[Any], Any]:
    """A loss that depends on every output alike: the output's product with seeded normal values, summed in float32.

    The mean of the output would not do: it does not change through a softmax or a LayerNorm, and every layer below
    would look dead.
    """

    def loss(output: Any) -> Any:
        total = jnp.zeros((), jnp.float32)
        leaves = [leaf for leaf in jax.tree_util.tree_leaves(output) if hasattr(leaf, "dtype")]
        floating = [leaf for leaf in leaves if is_inexact(leaf.dtype)]
        if not floating:
            raise SurgeryError(
                "the output has no floating values, so there is no gradient",
                fix="give a loss: `--loss train.py:loss`",
                field="grad",
            )
        for number, leaf in enumerate(floating):
            key = jax.random.fold_in(jax.random.key(seed), number)
            weights = jax.random.normal(key, leaf.shape, jnp.float32)
            total += (jnp.real(leaf).astype(jnp.float32) * weights).sum()
        return total

    return loss


def checked_scalar(value: Any) -> Any:
    """The value of a user's loss, if it is a real floating scalar.

    Raises:
        SurgeryError: it is something else.
    """
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape != () or not jnp.issubdtype(dtype, jnp.floating):
        found = type(value).__name__ if shape is None else array_text(dtype, shape)
        raise SurgeryError(
            f"the loss gives {found}",
            why="a gradient needs one floating number",
            fix="reduce it, e.g. by `.mean()`",
            field="loss",
        )
    return value


def _identity(value: Any, _feed: Any) -> Any:
    return value


def _forward(value: Any, _feed: Any) -> tuple[Any, None]:
    return value, None


def _measured_backward(_: None, gradient: Any) -> tuple[Any, Any]:
    floats, counts = measure(gradient)
    return gradient, jnp.concatenate([floats, counts.astype(jnp.float32)])


_measuring = jax.custom_vjp(_identity)
_measuring.defvjp(_forward, _measured_backward)
_keeping = jax.custom_vjp(_identity)
_keeping.defvjp(_forward, lambda _, gradient: (gradient, gradient))


def _tapped(is_whole: bool, value: Any, feed: Any) -> Any:
    return _keeping(value, feed) if is_whole else _measuring(value, feed)


def _measured(site: Site, found: Any) -> Measured:
    rows = np.asarray(found).reshape(-1, _SIZE)
    return together(rows[:, : len(FLOATS)], rows[:, len(FLOATS) :], site.size)


def _single(found: Any, value: Any) -> Measured:
    floats, counts = found
    size = int(np.prod(value.shape, dtype=np.int64))
    return together(np.asarray(floats)[None], np.asarray(counts)[None], size)
