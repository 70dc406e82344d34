"""The training states that are saved and restored: what a training script would hold in memory."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import optax
from flax import nnx
from flax.core import FrozenDict
from flax.training.train_state import TrainState

LAYERS = {"Dense_0": (3, 4), "Dense_1": (4, 4), "Dense_2": (4, 2)}


@dataclass(frozen=True)
class Target:
    """A kind of state: ``make`` gives it with fresh values; ``params`` is where its params stand, as printed."""

    name: str
    make: Callable[[], Any]
    params: str = "params"
    suffix: str = ""
    """What follows the param's own name in a path: NNX puts `/value` there."""

    def path(self, *keys: str) -> str:
        """The printed path of a param."""
        return "/".join((self.params, *keys)) + self.suffix

    def node(self, *keys: str) -> str:
        """The printed path of a node of the params."""
        return "/".join((self.params, *keys))


def filled(tree: Any, seed: int = 0) -> Any:
    """The tree with other values in its floating arrays: no slot is left at zero, none is like another."""
    numbers = np.random.default_rng(seed)

    def fill(leaf: Any) -> Any:
        if hasattr(leaf, "dtype") and jax.numpy.issubdtype(leaf.dtype, jax.numpy.floating):
            return jax.numpy.asarray(numbers.uniform(0.1, 2.0, leaf.shape), leaf.dtype)
        return leaf

    return jax.tree.map(fill, tree)


def params() -> dict[str, Any]:
    """Three dense layers."""
    return {
        layer: {"bias": np.zeros(shape[1], np.float32), "kernel": np.zeros(shape, np.float32)}
        for layer, shape in LAYERS.items()
    }


def _is_kernel(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.ndim > 1, tree)


def _chain() -> Any:
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(1e-3, mask=_is_kernel, mu_dtype="bfloat16")
    )
    return filled(TrainState.create(apply_fn=None, params=params(), tx=optimizer))


def _groups() -> Any:
    groups = {layer: "frozen" if layer == "Dense_2" else "trained" for layer in LAYERS}
    optimizer = optax.multi_transform(
        {"trained": optax.adam(1e-3), "frozen": optax.set_to_zero()},
        lambda tree: {layer: groups.get(layer, "trained") for layer in tree},
    )
    return filled(TrainState.create(apply_fn=None, params=params(), tx=optimizer))


def _frozen() -> Any:
    frozen = FrozenDict(params())
    return filled({"params": frozen, "opt_state": optax.sgd(0.1, momentum=0.9).init(frozen)})


class _Network(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        for layer, (d_in, d_out) in LAYERS.items():
            setattr(self, layer, nnx.Linear(d_in, d_out, rngs=rngs))


def _nnx() -> Any:
    model = _Network(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
    return filled({"model": nnx.state(model), "optimizer": nnx.state(optimizer)})


def _containers() -> Any:
    numbers = np.random.default_rng(5)
    return {
        "params": filled(params(), 1),
        "pair": (jax.numpy.arange(3), jax.numpy.float32(7.0)),
        "list": [jax.numpy.arange(4.0), {"inner": numbers.normal(size=(2, 2))}, 3],
        "nothing": None,
        "no_dict": {},
        "no_list": [],
        "no_tuple": (),
        "counter": 5,
        "rate": 0.125,
        "flag": jax.numpy.asarray([True, False]),
    }


TARGETS = [
    Target("chain", _chain),
    Target("groups", _groups),
    Target("frozen", _frozen),
    Target("nnx", _nnx, params="model", suffix="/value"),
    Target("containers", _containers),
]


def as_items(state: Any) -> dict[str, Any]:
    """The state as the items of a Composite step."""
    if isinstance(state, TrainState):
        return {"params": state.params, "opt_state": state.opt_state}
    is_tree = {key: len(jax.tree.leaves(part)) > 1 for key, part in state.items()}
    return {key: part for key, part in state.items() if is_tree[key]}


def abstract(tree: Any) -> Any:
    """The target of a restore: shapes, dtypes and shardings, as a training script states them."""
    return jax.tree.map(_abstract, tree)


def _abstract(leaf: Any) -> Any:
    if isinstance(leaf, jax.Array):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)
    return leaf


def text_of(keys: tuple[Any, ...]) -> str:
    """A path of JAX as Orbax names it and `surgery` prints it."""
    return "/".join(_key_text(key) for key in keys)


def _key_text(key: Any) -> str:
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    raise TypeError(key)


def leaves_of(tree: Any) -> dict[str, Any]:
    """Leaves by printed path, None and other empties left out."""
    flat, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {text_of(keys): leaf for keys, leaf in flat}


def is_same(a: Any, b: Any) -> bool:
    """Bit by bit: dtype, shape, bytes; for Python values type and value."""
    if isinstance(a, str | bool | int | float | complex) or a is None:
        return type(a) is type(b) and a == b
    if hasattr(a, "dtype") and jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key):
        same_kind = hasattr(b, "dtype") and a.dtype == b.dtype
        return same_kind and is_same(jax.random.key_data(a), jax.random.key_data(b))
    left, right = np.asarray(a), np.asarray(b)
    return (
        left.dtype == right.dtype
        and left.shape == right.shape
        and left.tobytes() == right.tobytes()
    )
