"""Random trees: what training scripts hold in memory, and what they also might."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import ml_dtypes
import numpy as np
from hypothesis import strategies as st

from tests.random_plans.layouts import Layout
from tests.random_plans.model import Empty, Path, flat
from tests.random_plans.optimizers import OPTIMIZERS, Facts, facts_of, state_of

_PARAM_KEYS = ("Dense_0", "Dense_1", "blocks", "kernel", "bias", "w", "0", "1", "x.y", "mlp/up")
_OTHER_KEYS = ("a", "b", "c_1", "2", "p.q", "dir/name", "Ünï", "list")
_PARAM_DTYPES = ("float32", "bfloat16", "float16")
_OTHER_DTYPES = (
    *_PARAM_DTYPES,
    "float64",
    "int32",
    "int8",
    "uint8",
    "bool",
    "float8_e4m3fn",
    "float8_e5m2",
    "complex64",
)


def _shown(leaf: Any) -> str:
    kind = "jax " if isinstance(leaf, jax.Array) else ""
    return f"{kind}{leaf.dtype}{list(leaf.shape)}" if hasattr(leaf, "dtype") else repr(leaf)


@dataclass
class Sample:
    """A tree, where its params stand, and what is true of its optimizer."""

    tree: Any
    root: Path
    optimizer: str
    facts: Facts
    seed: int

    def __str__(self) -> str:
        leaves = flat(jax.tree.map(lambda leaf: leaf, self.tree))
        return ", ".join(
            f"{'/'.join(map(str, path))} {_shown(leaf)}" for path, leaf in leaves.items()
        )

    @property
    def optimizer_at(self) -> Path:
        return ("optimizer",) if self.optimizer == "nnx" else ("opt_state",)


def values(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Numbers of a size that weights have, or anything that the dtype holds."""
    numbers = np.random.default_rng(seed)
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    if dtype == "bool":
        return np.asarray(numbers.integers(0, 2, shape)).astype(bool)
    if "int" in dtype:
        return np.asarray(numbers.integers(0, 100, shape)).astype(kind)
    if dtype == "complex64":
        return np.asarray(numbers.normal(size=shape) + 1j * numbers.normal(size=shape)).astype(kind)
    signed = numbers.uniform(0.25, 2.0, shape) * numbers.choice([-1, 1], shape)
    return np.asarray(signed).astype(kind)


shapes = st.lists(st.integers(1, 4), max_size=3).map(tuple)
seeds = st.integers(0, 9)


@st.composite
def arrays(draw: Any, dtypes: tuple[str, ...], as_jax: bool) -> Any:
    dtype = draw(st.sampled_from(dtypes))
    array = values(dtype, draw(shapes), draw(seeds))
    if as_jax and dtype in ("float32", "bfloat16", "int32") and draw(st.booleans()):
        return jax.numpy.asarray(array)
    return array


def _others(layout: Layout) -> st.SearchStrategy[Any]:
    leaves = [
        arrays(_OTHER_DTYPES if not layout.is_file else _OTHER_DTYPES[:8], not layout.is_file),
        st.sampled_from([3, -1, 0.5, 2.0, True]),
        st.sampled_from([None, {}, []]),
        st.sampled_from(["text", "", "ein Wörtchen/1"]),
    ]
    return st.one_of(*leaves)


def _nested(leaves: Any, keys: tuple[str, ...], *, lists: bool) -> Any:
    def node(children: Any) -> Any:
        dicts = st.dictionaries(st.sampled_from(keys), children, min_size=1, max_size=3)
        return st.one_of(dicts, st.lists(children, min_size=1, max_size=3)) if lists else dicts

    return st.recursive(leaves, node, max_leaves=6)


def _params(layout: Layout, *, lists: bool) -> Any:
    def tree(narrow: str) -> Any:
        inner = _nested(arrays(("float32", narrow), not layout.is_file), _PARAM_KEYS, lists=lists)
        return st.dictionaries(st.sampled_from(_PARAM_KEYS), inner, min_size=1, max_size=3)

    return st.one_of(tree("bfloat16"), tree("float16"))  # optax does not promote one to the other


def is_storable(tree: Any) -> bool:
    """True if Orbax keeps all leaves apart: it joins keys with dots, and a slash in a key is a directory.

    It does not save a tree without values either, and here each item is one.
    """
    if not all(any(not isinstance(v, Empty) for v in flat(t).values()) for t in tree.values()):
        return False
    names = [".".join(map(str, path)) for path in flat(tree)]
    parents = {
        "/".join(name.split("/")[:n]) for name in names for n in range(1, name.count("/") + 1)
    }
    return len(set(names)) == len(names) and not parents & set(names)


def _wrapped(tree: Any) -> Any:
    """As NNX stores variables."""
    if isinstance(tree, dict):
        return {key: _wrapped(child) for key, child in tree.items()}
    return {"value": tree}


@st.composite
def samples(draw: Any, layout: Layout) -> Sample:
    """A tree for a layout."""
    name = draw(st.sampled_from(["none", *OPTIMIZERS, "nnx"]))
    params = draw(_params(layout, lists=name != "nnx" and not layout.is_file))
    seed = draw(seeds)
    tree: dict[str, Any] = {"params": params}
    facts, root = Facts(), ("params",)
    if name == "nnx":
        state = state_of("adam", params, seed)
        root = ("model",)
        wrapped = _wrapped(params)
        kept = {field: getattr(state[0], field) for field in ("mu", "nu")}
        facts = facts_of(
            (state[0]._replace(**{f: _wrapped(t) for f, t in kept.items()}), state[1]),
            wrapped,
            ("optimizer", "opt_state"),
            root,
        )
        facts = facts.renamed(lambda path: tuple(map(str, path)))
        count = ("optimizer", "opt_state", "0", "count")
        facts.clocks = {(*count, "value"): count[:-1]}
        inner = {"count": {"value": state[0].count}, **{f: _wrapped(t) for f, t in kept.items()}}
        step = {"value": np.asarray(50, "uint32")}
        tree = {"model": wrapped, "optimizer": {"opt_state": {"0": inner}, "step": step}}
    elif name != "none":
        state = state_of(name, params, seed)
        facts = facts_of(state, params, ("opt_state",), root)
        tree["opt_state"] = state
        tree["step"] = np.asarray(50, "int32") if not layout.has_items else {"now": np.asarray(50)}
    others = _nested(_others(layout), _OTHER_KEYS, lists=True)
    for key in draw(st.lists(st.sampled_from(["extra", "meta"]), unique=True, max_size=2)):
        child = draw(others)
        tree[key] = child if isinstance(child, dict) or not layout.has_items else {"it": child}
    if layout.is_file:
        facts = facts.renamed(lambda path: tuple(map(str, path)))
    return Sample(tree, root, name, facts, seed)


def other_values(sample: Sample, seed: int) -> Any:
    """The same tree with other numbers in its floating arrays: a donor."""
    numbers = np.random.default_rng(seed)

    def change(leaf: Any) -> Any:
        if not hasattr(leaf, "dtype"):
            return leaf
        array = np.asarray(leaf)
        if "float" not in array.dtype.name:
            return leaf
        changed = np.asarray(
            array.astype("float32") * numbers.uniform(0.5, 1.0, array.shape)
        ).astype(array.dtype)
        return jax.numpy.asarray(changed) if isinstance(leaf, jax.Array) else changed

    return jax.tree.map(change, sample.tree)
