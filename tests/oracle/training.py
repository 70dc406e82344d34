"""Two trainings with the same gradients: params as they are, and params times a factor."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tests.oracle.cases import STEPS, Case
from tests.oracle.optimizers import Optimizer, Tree, drawn

SHAPES = {"a": {"bias": (6,), "kernel": (4, 6)}, "b": {"kernel": (4, 6)}}
MATRICES = {"a": {"bias": (1, 6), "kernel": (4, 6)}, "b": {"kernel": (4, 6)}}
EDITED = ("a", "kernel")


Make = Callable[[tuple[int, ...]], Any]


class Problem(NamedTuple):
    """The shapes of the params; params and gradients of every step, and the params after the last."""

    shapes: Tree
    params: list[Tree]
    gradients: list[Tree]
    size: float

    def filled(self, make: Make) -> Tree:
        """A tree like the params, each leaf made of its shape."""
        return jax.tree.map(make, self.shapes, is_leaf=lambda x: isinstance(x, tuple))


def problem(shapes: Tree, draws: np.random.Generator, size: float, most: int) -> Problem:
    """Params that walk about, and gradients of one of several kinds, nowhere zero."""
    found = Problem(shapes, [], [], size)
    filled = found.filled
    steps = min(int(draws.choice(STEPS)), most)
    width = float(draws.choice([1e-4, 0.05, 1.0, 50.0]))
    kind = draws.choice(["noise", "heavy", "constant", "decaying"])
    base = filled(lambda shape: draws.normal(size=shape))

    def gradient(step: int) -> Tree:
        noise = filled(lambda shape: draws.normal(size=shape))
        if kind == "heavy":
            noise = jax.tree.map(lambda x: np.sign(x) * np.abs(x) ** 3, noise)
        elif kind == "constant":
            noise = jax.tree.map(lambda x, b: b + 0.01 * x, noise, base)
        elif kind == "decaying":
            noise = jax.tree.map(lambda x: x * 0.5**step, noise)
        return jax.tree.map(lambda x: (size * x).astype(np.float32), noise)

    params, gradients = found.params, found.gradients
    params.append(filled(lambda shape: (width * draws.normal(size=shape)).astype(np.float32)))
    for step in range(steps):
        gradients.append(gradient(step))
        walk = filled(lambda shape: draws.normal(size=shape))
        params.append(jax.tree.map(lambda p, w: p + np.float32(0.02 * width * w), params[-1], walk))
    return found


def factors(edit: str, task: Problem, draws: np.random.Generator) -> Tree:
    """By what each leaf is multiplied: a number, or an array that broadcasts to it."""
    number = float(draws.choice([0.1, 3.0, 10.0]))
    ones = task.filled(lambda _: np.float32(1))
    layer, leaf = EDITED
    shape = task.shapes[layer][leaf]
    kernel = np.asarray(task.params[-1][layer][leaf], np.float64)
    by: Any = {
        "one leaf": number,
        "all leaves": number,
        "negative": -number,
        "array": np.exp(draws.uniform(-2, 2, shape)),
        "row and column": np.exp(draws.uniform(-2, 2, shape[-1])),
        "normalize axis": 1 / np.sqrt((kernel**2).sum(axis=0, keepdims=True)),
    }[edit]
    if edit == "all leaves":
        return jax.tree.map(lambda _: np.float32(by), ones)
    ones[layer][leaf] = np.asarray(by, np.float32)
    return ones


def both(params: Tree, is_pair: bool) -> Tree:
    """Params as the optimizer takes them: lookahead wants fast and slow ones."""
    params = jax.tree.map(jnp.asarray, params)
    return optax.LookaheadParams(params, params) if is_pair else params


def trained(optimizer: Optimizer, task: Problem, by: Tree) -> tuple[Tree, Any]:
    """The params and the state after every gradient, divided by ``by``, of params times ``by``."""
    is_pair = "lookahead" in optimizer.names
    own = [jax.tree.map(lambda p, a: p * a, params, by) for params in task.params]
    with jax.disable_jit():  # compiling takes longer than a few steps of a few numbers
        state = optimizer.transformation.init(both(own[0], is_pair))
        for params, gradient in zip(own, task.gradients, strict=False):
            divided = jax.tree.map(lambda g, a: jnp.asarray(g / a), gradient, by)
            state = _updated(optimizer, task.size, divided, state, both(params, is_pair), by)
    return both(own[-1], is_pair), state


def _updated(
    optimizer: Optimizer, size: float, gradient: Tree, state: Any, params: Tree, by: Tree
) -> Any:
    """The next state after one step, with all that the optimizer asks for."""

    def value(params: Tree) -> Any:
        divided = jax.tree.map(lambda p, a: p / a, params, by)
        return size * sum((leaf**2).sum() for leaf in jax.tree.leaves(divided)) / 2

    if optimizer.needs == "examples":
        gradient = jax.tree.map(lambda g: g[None], gradient)
    extra: dict[str, Any] = {}
    if optimizer.needs == "value_fn":
        gradient = jax.grad(value)(params)
    if optimizer.needs.endswith("_fn"):
        extra = {optimizer.needs: value}
    if optimizer.needs.startswith("value"):
        extra |= {"value": value(params), "grad": gradient}
    transformation = optax.with_extra_args_support(optimizer.transformation)
    return transformation.update(gradient, state, params, **extra)[1]


class Trained(NamedTuple):
    """Params and state before the edit, and the truth: those of the training that had the factor from its start."""

    optimizer: Optimizer
    params: Tree
    state: Any
    by: Tree
    wanted_params: Tree
    wanted: Any


def both_trainings(case: Case) -> Trained:
    """Train twice for a case."""
    training = (case.optimizer, case.surrounding, case.seed, case.size, case.steps)
    optimizer, _, params, state = _plain(*training)
    by, *wanted = _scaled(*training, case.edit)
    return Trained(optimizer, params, state, by, *wanted)


@lru_cache(maxsize=2)
def _plain(
    name: str, surrounding: str, seed: int, size: float, most: int
) -> tuple[Optimizer, Problem, Tree, Any]:
    draws = drawing(name, surrounding, seed, size)
    optimizer = drawn(name, surrounding, size, draws)
    shapes = MATRICES if "scale_by_muon" in name else SHAPES
    task = problem(shapes, draws, size, most)
    params, state = trained(optimizer, task, task.filled(lambda _: np.float32(1)))
    return optimizer, task, params, state


@lru_cache(maxsize=2)
def _scaled(
    name: str, surrounding: str, seed: int, size: float, most: int, edit: str
) -> tuple[Tree, Tree, Any]:
    optimizer, task, *_ = _plain(name, surrounding, seed, size, most)
    by = factors(edit, task, drawing(name, surrounding, seed, edit))
    return by, *trained(optimizer, task, by)


def drawing(*texts: object) -> np.random.Generator:
    """Randomness that depends on these words alone."""
    return np.random.default_rng(zlib.crc32("/".join(map(str, texts)).encode()))
