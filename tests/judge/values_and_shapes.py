"""Edits of values, and of shapes with their slots: in one plan each of several, every one on a leaf of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from tests.judge.edits import Edit, Steps, with_keys
from tests.judge.targets import LAYERS, Target, text_of

MEMBER = np.linspace(-1.0, 1.0, LAYERS["Dense_2"][1], dtype=np.float32)
"""The bias of the last layer in the other member of an average."""
MASK = np.arange(16).reshape(4, 4) % 3 > 0
ORDER = (2, 0, 3, 1)
SMALL = 1e-30
"""A standard deviation that is lost in the rounding of every leaf: what noise is, its own tests say."""

FUNCTIONS = "def halved(array, path):\n    return array * array.dtype.type(0.5)\n"

Changes = Mapping[tuple[str, str], Callable[[np.ndarray], Any]]


def _changed(target: Target, state: Any, params: Changes, slots: Changes = {}) -> Any:  # noqa: B006
    """The state with some params computed anew, by layer and name, and with their slots."""

    def change(keys: tuple[Any, ...], leaf: Any) -> Any:
        path = text_of(keys)
        own = path.startswith(target.params + "/")
        for place, compute in (params if own else slots).items():
            if path.endswith("/".join(("", *place)) + target.suffix):
                values = np.asarray(compute(np.asarray(leaf)))
                return jax.numpy.asarray(values) if isinstance(leaf, jax.Array) else values
        return leaf

    return jax.tree_util.tree_map_with_path(change, state)


def _values(target: Target, donors: Mapping[str, str]) -> Steps:
    return [
        ("mask", {"at": target.path("Dense_1", "kernel"), "by": donors["mask"]}),
        ("noise", {"at": target.path("Dense_0", "kernel"), "std": str(SMALL)}),
        (
            "shrink-and-perturb",
            {"at": target.path("Dense_2", "kernel"), "shrink": "0.5", "std": str(SMALL)},
        ),
        ("map", {"at": target.path("Dense_0", "bias"), "with": donors["functions"] + ":halved"}),
        ("average", {"at": target.path("Dense_2", "bias"), "with": donors["members"]}),
        ("set", {"at": "step", "to": "100", "optional": True}),
        ("reset-optimizer", {"at": target.node("Dense_1"), "optional": True}),
        ("assert", {"at": target.params, "finite": True}),
    ]


def _values_changed(target: Target, state: Any) -> Any:
    changed = _changed(
        target,
        state,
        {
            ("Dense_1", "kernel"): lambda x: np.where(MASK, x, np.float32(0)),
            ("Dense_2", "kernel"): lambda x: x * np.float32(0.5),
            ("Dense_0", "bias"): lambda x: x * np.float32(0.5),
            ("Dense_2", "bias"): lambda x: ((x.astype(np.float64) + MEMBER) / 2).astype(x.dtype),
        },
        {("Dense_1", name): np.zeros_like for name in ("kernel", "bias")},
    )
    return jax.tree_util.tree_map_with_path(
        lambda keys, leaf: type(leaf)(100) if text_of(keys) == "step" else leaf, changed
    )


def _shapes(target: Target, donors: Mapping[str, str]) -> Steps:
    return [
        ("transpose", {"at": target.path("Dense_0", "kernel")}),
        ("reshape", {"at": target.path("Dense_1", "kernel"), "shape": "2,8"}),
        (
            "permute",
            {
                "at": target.path("Dense_2", "kernel"),
                "axis": "0",
                "index": ",".join(map(str, ORDER)),
            },
        ),
        ("expand", {"at": target.path("Dense_0", "bias"), "axis": "0"}),
        ("slice", {"at": target.path("Dense_1", "bias"), "slices": "1:3"}),
        ("pad", {"at": target.path("Dense_2", "bias"), "axis": "0", "after": "2"}),
    ]


def _shapes_changed(target: Target, state: Any) -> Any:
    moves: Changes = {
        ("Dense_0", "kernel"): np.transpose,
        ("Dense_1", "kernel"): lambda x: x.reshape(2, 8),
        ("Dense_2", "kernel"): lambda x: x[list(ORDER)],
        ("Dense_0", "bias"): lambda x: x[None],
        ("Dense_1", "bias"): lambda x: x[1:3],
        ("Dense_2", "bias"): lambda x: np.concatenate([x, np.zeros(2, x.dtype)]),
    }
    moved = _changed(target, state, moves, moves)

    def filled(keys: tuple[Any, ...], leaf: Any) -> Any:
        """New places of a second moment have the mean of the others."""
        is_padded = "/nu/Dense_2/bias" in text_of(keys)
        if not is_padded:
            return leaf
        own = np.asarray(leaf)[:-2]
        mean = own.mean(dtype=np.float64).astype(own.dtype)
        return jax.numpy.asarray(np.concatenate([own, [mean, mean]]).astype(own.dtype))

    return jax.tree_util.tree_map_with_path(filled, moved)


def _squeezed(target: Target, state: Any) -> Any:
    moves: Changes = {("Dense_1", "kernel"): lambda x: x[2]}
    return _changed(target, state, moves, moves)


def _joined(leaves: Any) -> Any:
    """Trees with leaves side by side along a new first axis."""
    return jax.tree.map(
        lambda *each: (jax.numpy if isinstance(each[0], jax.Array) else np).stack(each), *leaves
    )


def _without(layer: Any, name: str) -> Any:
    return type(layer)({key: value for key, value in layer.items() if key != name})


def _stacked(target: Target, state: Any) -> Any:
    def change(mapping: dict[Any, Any]) -> dict[Any, Any]:
        layers = {name: mapping.get(name) for name in ("Dense_0", "Dense_1")}
        if not all(isinstance(layer, Mapping) for layer in layers.values()):
            return mapping
        kind = type(mapping["Dense_0"])
        stacked = kind({"bias": _joined([layer["bias"] for layer in layers.values()])})
        rest = {name: _without(layer, "bias") for name, layer in layers.items()}
        return {**mapping, **rest, "layers": stacked}

    return with_keys(state, change)


def _unstacked(target: Target, state: Any) -> Any:
    def change(mapping: dict[Any, Any]) -> dict[Any, Any]:
        layer = mapping.get("Dense_1")
        if not isinstance(layer, Mapping):
            return mapping
        rows = {
            f"row_{n}": jax.tree.map(lambda leaf, n=n: leaf[n], layer["kernel"]) for n in range(4)
        }
        return {**mapping, "Dense_1": _without(layer, "kernel"), "rows": type(layer)(rows)}

    return with_keys(state, change)


def _split(target: Target, state: Any) -> Any:
    """Of the layer in the middle the columns in two halves, two by turns; the biases of the first two in one."""

    def change(mapping: dict[Any, Any]) -> dict[Any, Any]:
        layers = [mapping.get(name) for name in ("Dense_0", "Dense_1")]
        if not all(isinstance(layer, Mapping) for layer in layers):
            return mapping
        first, second = layers
        kind = type(first)
        halves = {
            name: jax.tree.map(lambda leaf, n=n: leaf[:, n::2], second["kernel"])
            for n, name in enumerate(("even", "odd"))
        }
        xp = jax.numpy if isinstance(jax.tree.leaves(first["bias"])[0], jax.Array) else np
        bias = jax.tree.map(lambda *each: xp.concatenate(each), first["bias"], second["bias"])
        rest = {key: value for key, value in mapping.items() if key != "Dense_1"}
        return {
            **rest,
            "Dense_0": _without(first, "bias"),
            "halves": kind(halves),
            "layers": kind({"bias": bias}),
        }

    return with_keys(state, change)


def _met(target: Target, state: Any) -> Any:
    return _changed(target, state, {("Dense_2", "bias"): lambda x: MEMBER})


def _in_both(target: Target, state: Any) -> Any:
    def change(mapping: dict[Any, Any]) -> dict[Any, Any]:
        if "Dense_2" not in mapping:
            return mapping
        layer = mapping["Dense_2"]
        is_hole = not isinstance(layer, Mapping)
        return {"Dense_2": layer if is_hole else type(layer)({"bias": layer["bias"]})}

    return with_keys(state, change)


def _flat_and_back(target: Target, donors: Mapping[str, str]) -> Steps:
    if target.name == "groups":  # a layer that a state leaves out as a whole cannot be taken apart
        return []
    both = {"at": target.params, "separator": "--"}
    return [("flatten", both), ("unflatten", both)]


VALUES_AND_SHAPES = [
    Edit("more-values", _values, _values_changed),
    Edit("shapes", _shapes, _shapes_changed),
    Edit(
        "slice-and-squeeze",
        lambda target, donors: [
            ("slice", {"at": target.path("Dense_1", "kernel"), "slices": "2:3"}),
            ("squeeze", {"at": target.path("Dense_1", "kernel"), "axis": "0"}),
        ],
        _squeezed,
    ),
    Edit(
        "stack",
        lambda target, donors: [
            (
                "stack",
                {
                    "at": target.path("Dense_{0..1}", "bias"),
                    "to": target.path("layers", "bias"),
                },
            )
        ],
        _stacked,
    ),
    Edit(
        "unstack",
        lambda target, donors: [
            (
                "unstack",
                {
                    "at": target.path("Dense_1", "kernel"),
                    "to": target.path("rows", "row_{0..3}"),
                },
            )
        ],
        _unstacked,
    ),
    Edit(
        "split-and-concat",
        lambda target, donors: [
            (
                "split",
                {
                    "at": target.path("Dense_1", "kernel"),
                    "to": [target.path("halves", name) for name in ("even", "odd")],
                    "axis": "1",
                    "groups": "2",
                },
            ),
            (
                "concat",
                {
                    "at": [target.path(f"Dense_{n}", "bias") for n in range(2)],
                    "to": target.path("layers", "bias"),
                    "axis": "0",
                },
            ),
        ],
        _split,
    ),
    Edit(
        "merge",
        lambda target, donors: [
            ("merge", {"at": target.params, "with": donors["members"], "both": "theirs"})
        ],
        _met,
    ),
    Edit(
        "intersect",
        lambda target, donors: [("intersect", {"at": target.params, "with": donors["members"]})],
        _in_both,
    ),
    Edit(
        "flatten-and-back",
        _flat_and_back,
        lambda target, state: state,
    ),
]
