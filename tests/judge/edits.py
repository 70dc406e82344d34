"""Edits as `surgery` is told them, beside the same edits done in Python to the state in memory."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from flax import nnx, struct
from flax.core import FrozenDict

from surgery_cli.surgery import Options
from tests.judge.merges import merged, merging
from tests.judge.targets import Target, text_of

Steps = list[tuple[str, dict[str, Any]]]


@dataclass(frozen=True)
class Edit:
    """``steps(target, donors)`` are the operations with their options; ``change`` is the edit by independent means.

    ``close_to`` names the leaves that are compared to rounding instead of bit by bit.
    """

    name: str
    steps: Callable[[Target, Mapping[str, str]], Steps]
    change: Callable[[Target, Any], Any]
    options: Options = field(default_factory=lambda: Options(optimizer="keep"))
    is_rounded: bool = False


# -- the same edits in Python ----------------------------------------------------------------------------------------


def with_leaf(tree: Any, path: str, compute: Callable[[np.ndarray], Any]) -> Any:
    """The state with one leaf's values computed anew, on the leaf's own devices."""

    def change(keys: tuple[Any, ...], leaf: Any) -> Any:
        if text_of(keys) != path:
            return leaf
        values = np.asarray(compute(np.asarray(leaf)))
        return jax.device_put(values, leaf.sharding) if isinstance(leaf, jax.Array) else values

    return jax.tree_util.tree_map_with_path(change, tree)


def with_keys(tree: Any, change: Callable[[dict[Any, Any]], dict[Any, Any]]) -> Any:
    """The state with ``change`` applied to every mapping in it, from the leaves upwards."""
    if isinstance(tree, nnx.State):
        return nnx.State(change({key: with_keys(value, change) for key, value in tree.items()}))
    if isinstance(tree, FrozenDict):
        return FrozenDict(change({key: with_keys(value, change) for key, value in tree.items()}))
    if isinstance(tree, dict):
        return change({key: with_keys(value, change) for key, value in tree.items()})
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(with_keys(value, change) for value in tree))
    if isinstance(tree, list | tuple):
        return type(tree)(with_keys(value, change) for value in tree)
    if hasattr(tree, "__dataclass_fields__") and isinstance(tree, struct.PyTreeNode):
        return tree.replace(
            params=with_keys(tree.params, change), opt_state=with_keys(tree.opt_state, change)
        )
    return tree


def renamed(names: Mapping[str, str]) -> Callable[[Target, Any], Any]:
    """Layers under other names, in the params and in every slot."""

    def change(mapping: dict[Any, Any]) -> dict[Any, Any]:
        return {names.get(key, key): value for key, value in mapping.items()}

    return lambda target, state: with_keys(state, change)


def _copied(target: Target, state: Any) -> Any:
    def change(mapping: dict[Any, Any]) -> dict[Any, Any]:
        return {**mapping, "Dense_9": mapping["Dense_1"]} if "Dense_1" in mapping else mapping

    return with_keys(state, change)


def _with_new(target: Target, state: Any, layer: str, shape: Callable[..., Any]) -> Any:
    """The leaves of a layer anew, in the shape that ``shape`` makes of theirs: params are 0.75, slots start at 0."""

    def change(keys: tuple[Any, ...], leaf: Any) -> Any:
        path = text_of(keys)
        if f"/{layer}/" not in f"/{path}/" or not hasattr(leaf, "dtype"):
            return leaf
        value = 0.75 if path.startswith(f"{target.params}/") else 0.0
        new = np.full(shape(leaf.shape), value, leaf.dtype)
        return jax.device_put(new, leaf.sharding) if isinstance(leaf, jax.Array) else new

    return jax.tree_util.tree_map_with_path(change, state)


def _added(target: Target, state: Any) -> Any:
    return _with_new(target, _copied(target, state), "Dense_9", lambda shape: shape)


def _head_swapped(target: Target, state: Any) -> Any:
    return _with_new(target, state, "Dense_2", lambda shape: (*shape[:-1], 6))


def _without_biases(target: Target, state: Any) -> Any:
    def change(mapping: dict[Any, Any]) -> dict[Any, Any]:
        if "Dense_1" not in mapping or not isinstance(mapping["Dense_1"], Mapping):
            return mapping
        layer = mapping["Dense_1"]
        rest = {key: value for key, value in layer.items() if key != "bias"}
        return {**mapping, "Dense_1": type(layer)(rest)}

    return with_keys(state, change)


def _params_alone(target: Target, state: Any) -> Any:
    params = state[target.params] if isinstance(state, Mapping) else state.params
    return {target.params: params}


def _scaled(target: Target, state: Any) -> Any:
    return with_leaf(state, target.path("Dense_1", "kernel"), lambda x: x * np.float32(0.5))


def _values_changed(target: Target, state: Any) -> Any:
    def change(x: np.ndarray) -> Any:
        x = np.clip(x + x * np.float32(0.5), -0.75, 0.75)
        chosen = np.argsort(-np.abs(x).reshape(-1), kind="stable")[: x.size // 2]
        return np.where(np.isin(np.arange(x.size), chosen).reshape(x.shape), x, np.float32(0))

    return with_leaf(state, target.path("Dense_1", "kernel"), change)


def with_kernels(target: Target, tree: Any, move: Callable[[np.ndarray, str], Any]) -> Any:
    """The state with a kernel, and every slot of it, moved to another shape; ``move`` is told the slot's path."""
    end = target.path("Dense_1", "kernel").removeprefix(target.params)

    def change(keys: tuple[Any, ...], leaf: Any) -> Any:
        if not text_of(keys).endswith(end):
            return leaf
        values = move(np.asarray(leaf), text_of(keys))
        return jax.numpy.asarray(values) if isinstance(leaf, jax.Array) else values

    return jax.tree_util.tree_map_with_path(change, tree)


def _grown(target: Target, state: Any) -> Any:
    def move(leaf: np.ndarray, path: str) -> np.ndarray:
        places = leaf.mean(0, dtype=np.float64) if "/nu/" in path else np.zeros(leaf.shape[1:])
        rows = leaf[:2] if path.startswith(target.params) else [places] * 2
        resized = np.concatenate([leaf, np.asarray(rows, leaf.dtype)])
        stacked = np.stack([resized.repeat(2, 1)] * 3)
        # three places become five: as they are, and between two of them half of both
        weights = np.asarray([[2, 0, 0], [1, 1, 0], [0, 2, 0], [0, 1, 1], [0, 0, 2]]) / 2
        is_moment = not path.startswith(target.params) and "/nu/" not in path
        return np.einsum("pn,nij->pij", weights * (not is_moment), stacked).astype(leaf.dtype)

    return with_kernels(target, state, move)


def _kernel(target: Target, **options: Any) -> dict[str, Any]:
    return {"at": target.path("Dense_1", "kernel"), **options}


DONOR_VALUES = np.random.default_rng(99).normal(size=(4, 4)).astype(np.float32)
DONOR_LAYOUTS = ("ocdbt-zarr2", "ocdbt-zarr3", "leaves-zarr2", "leaves-zarr3")


def _from_donor(layout: str) -> Edit:
    return Edit(
        f"replace-from-{layout}",
        lambda target, donors: [
            ("replace", _kernel(target, **{"with": donors[layout], "from": "donated/kernel"}))
        ],
        lambda target, state: with_leaf(
            state, target.path("Dense_1", "kernel"), lambda x: DONOR_VALUES
        ),
    )


def _layer(target: Target, name: str) -> str:
    return target.node(name)


EDITS = [
    Edit("nothing", lambda target, donors: [], lambda target, state: state),
    Edit("rescale", lambda target, donors: [("rescale", _kernel(target, by="0.5"))], _scaled),
    Edit(
        "rescale-compact",
        lambda target, donors: [("rescale", _kernel(target, by="0.5"))],
        _scaled,
        Options(optimizer="keep", compact="always"),
    ),
    Edit(
        "rescale-unlinked",
        lambda target, donors: [("rescale", _kernel(target, by="0.5"))],
        _scaled,
        Options(optimizer="keep", link="never"),
    ),
    Edit(
        "normalize",
        lambda target, donors: [("normalize", _kernel(target))],
        lambda target, state: with_leaf(
            state, target.path("Dense_1", "kernel"), lambda x: x / np.linalg.norm(x)
        ),
        is_rounded=True,
    ),
    Edit(
        "reinit",
        lambda target, donors: [("reinit", _kernel(target, init="constant", value="0.75"))],
        lambda target, state: with_leaf(
            state, target.path("Dense_1", "kernel"), lambda x: np.full_like(x, 0.75)
        ),
    ),
    Edit(
        "values",
        lambda target, donors: [
            (
                "add-scaled",
                _kernel(target, **{"from": target.path("Dense_1", "kernel")}, scale="0.5"),
            ),
            ("clip", _kernel(target, min="-0.75", max="0.75")),
            ("prune", _kernel(target, sparsity="0.5")),
        ],
        _values_changed,
    ),
    Edit(
        "merges",
        merging,
        lambda target, state: with_leaf(state, target.path("Dense_1", "kernel"), merged),
        is_rounded=True,
    ),
    Edit(
        "grow",
        lambda target, donors: [
            ("resize", _kernel(target, axis="0", size="6", fill="repeat")),
            ("repeat", _kernel(target, axis="1", times="2")),
            ("repeat", _kernel(target, axis="0", times="3", new_axis=True)),
            ("interpolate-positions", _kernel(target, axis="0", size="5", optimizer="warm")),
        ],
        _grown,
    ),
    Edit(
        "cast",
        lambda target, donors: [("cast", _kernel(target, to="float16"))],
        lambda target, state: with_leaf(
            state, target.path("Dense_1", "kernel"), lambda x: x.astype(np.float16)
        ),
    ),
    *(_from_donor(layout) for layout in DONOR_LAYOUTS),
    Edit(
        "rename",
        lambda target, donors: [
            ("rename", {"at": _layer(target, "Dense_1"), "to": _layer(target, "head")})
        ],
        renamed({"Dense_1": "head"}),
    ),
    Edit(
        "rename-and-back",
        lambda target, donors: [
            ("rename", {"at": _layer(target, "Dense_1"), "to": _layer(target, "head")}),
            ("rename", {"at": _layer(target, "head"), "to": _layer(target, "Dense_1")}),
        ],
        lambda target, state: state,
    ),
    Edit(
        "swap",
        lambda target, donors: [
            (
                "rename",
                {
                    "moves": [
                        f"{_layer(target, 'Dense_0')}={_layer(target, 'Dense_1')}",
                        f"{_layer(target, 'Dense_1')}={_layer(target, 'Dense_0')}",
                    ]
                },
            )
        ],
        renamed({"Dense_0": "Dense_1", "Dense_1": "Dense_0"}),
    ),
    Edit(
        "rotation",
        lambda target, donors: [
            (
                "rename",
                {
                    "moves": [
                        f"{_layer(target, f'Dense_{n}')}={_layer(target, f'Dense_{(n + 1) % 3}')}"
                        for n in range(3)
                    ]
                },
            )
        ],
        renamed({f"Dense_{n}": f"Dense_{(n + 1) % 3}" for n in range(3)}),
    ),
    Edit(
        "rename-then-rescale",
        lambda target, donors: [
            ("rename", {"at": _layer(target, "Dense_1"), "to": _layer(target, "head")}),
            ("rescale", {"at": target.path("head", "kernel"), "by": "0.5"}),
        ],
        lambda target, state: renamed({"Dense_1": "head"})(target, _scaled(target, state)),
    ),
    Edit(
        "copy",
        lambda target, donors: [
            ("copy", {"at": _layer(target, "Dense_1"), "to": _layer(target, "Dense_9")})
        ],
        _copied,
    ),
    Edit(
        "add",
        lambda target, donors: [
            (
                "add",
                {
                    "at": _layer(target, "Dense_9"),
                    "like": _layer(target, "Dense_1"),
                    "init": "constant",
                    "value": "0.75",
                },
            )
        ],
        _added,
    ),
    Edit(
        "head-swap",
        lambda target, donors: [
            (
                "reinit",
                {
                    "at": _layer(target, "Dense_2"),
                    "init": "constant",
                    "value": "0.75",
                    "shape": "..., 6",
                    "optimizer": "reset",
                },
            )
        ],
        _head_swapped,
    ),
    Edit(
        "delete",
        lambda target, donors: [("delete", {"at": target.node("Dense_1", "bias")})],
        _without_biases,
    ),
    Edit("keep", lambda target, donors: [("keep", {"at": target.params})], _params_alone),
    Edit(
        "keep-compact",
        lambda target, donors: [("keep", {"at": target.params})],
        _params_alone,
        Options(optimizer="keep", compact="always"),
    ),
]
