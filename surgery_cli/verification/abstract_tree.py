"""A training script's own tree, from shapes alone: what Orbax would store of the pytree that a function returns."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from surgery_cli.tree.paths import Key, LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec, TreeSpec


class Optimizer(msgspec.Struct, frozen=True):
    """An optax transformation that a train state holds, and its params as shapes."""

    transformation: Any
    params: Any


class AbstractTree(msgspec.Struct, frozen=True):
    """The leaves of a pytree as Orbax would store them, and the classes of the nodes above them.

    ``classes`` are qualified names, such as ``optax._src.transform.ScaleByAdamState``. ``unboxed`` gives, for leaves
    of NNX modules (which scripts save with or without the last key ``value``), the path without it. ``optimizers`` are
    those of train states (with ``tx``, ``params`` and ``opt_state``), by the path of the state.
    """

    tree: TreeSpec
    classes: dict[LeafPath, str] = {}
    unboxed: dict[LeafPath, LeafPath] = {}
    optimizers: dict[LeafPath, Optimizer] = {}

    def saved_as(self, stored: TreeSpec) -> TreeSpec:
        """The tree, with modules' variables spelled as ``stored`` spells them."""
        return self.tree.mapped(
            lambda path: self.unboxed[path] if self.unboxed.get(path) in stored else path
        )

    def below(self, key: Key) -> AbstractTree:
        """The part below a key of the root."""

        def cut(path: LeafPath) -> LeafPath:
            return LeafPath(path[1:])

        return AbstractTree(
            TreeSpec({cut(p): s for p, s in self.tree.items() if p[:1] == (key,)}),
            {cut(p): name for p, name in self.classes.items() if p[:1] == (key,)},
            {cut(p): cut(q) for p, q in self.unboxed.items() if p[:1] == (key,)},
            {cut(p): found for p, found in self.optimizers.items() if p[:1] == (key,)},
        )


def abstract_tree(function: Callable[[], Any]) -> AbstractTree:
    """Evaluate ``function`` under ``jax.eval_shape`` and describe the pytree that it returns.

    No array is allocated and no accelerator started. The pytree is looked at while it is traced, so that Python
    numbers, strings and NumPy arrays are seen as what they are.
    """
    import jax

    found: list[AbstractTree] = []

    def traced() -> None:
        found.append(described(function()))

    jax.eval_shape(traced)
    return found[0]


def described(pytree: Any) -> AbstractTree:
    """The leaves and classes of a pytree of arrays, tracers, ``ShapeDtypeStruct``, numbers and strings."""
    found = AbstractTree(TreeSpec({}), {}, {}, {})
    leaves: dict[LeafPath, LeafSpec] = {}
    _walk(pytree, LeafPath(), leaves, found, is_module=False)
    return msgspec.structs.replace(found, tree=TreeSpec(leaves))


def _walk(
    node: Any,
    path: LeafPath,
    leaves: dict[LeafPath, LeafSpec],
    found: AbstractTree,
    *,
    is_module: bool,
) -> None:
    """Add what stands at and below ``path``. ``is_module``: inside of an NNX module."""
    nnx = sys.modules.get("flax.nnx")
    if nnx is not None and isinstance(node, nnx.Pytree) and not isinstance(node, nnx.Variable):
        node, is_module = nnx.state(node), True  # scripts save a module's state
    children = list(_children(node))
    if len(children) == 1 and children[0][0] is None:
        leaves[path] = _leaf(node)
        return
    found.classes[path] = f"{type(node).__module__}.{type(node).__qualname__}"
    if all(hasattr(node, name) for name in ("tx", "params", "opt_state")):
        found.optimizers[path] = Optimizer(node.tx, _shapes(node.params))
    if not children:
        leaves[path] = LeafSpec(kind=LeafKind.EMPTY, empty=_empty_name(node))
    is_variable = is_module and nnx is not None and isinstance(node, nnx.Variable)
    for key, child in children:
        assert key is not None
        if is_variable and len(children) == 1:
            found.unboxed[path / (key,)] = path
        _walk(child, path / (key,), leaves, found, is_module=is_module)


def _shapes(pytree: Any) -> Any:
    import jax

    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), pytree)


def stored_leaves(pytree: Any, path: LeafPath = LeafPath()) -> Iterator[tuple[LeafPath, Any]]:
    """The leaves that are not empty, with their paths as Orbax stores them."""
    for key, child in _children(pytree):
        if key is None:
            yield path, child
        else:
            yield from stored_leaves(child, path / (key,))


def _children(node: Any) -> Iterator[tuple[Key | None, Any]]:
    """The children of a pytree node with their keys as Orbax stores them; ``(None, node)`` for a leaf."""
    import jax

    for keys, child in jax.tree_util.tree_flatten_with_path(node, is_leaf=lambda x: x is not node)[
        0
    ]:
        yield (_stored_key(keys[0]) if keys else None), child


def _stored_key(key: Any) -> Key:
    """A key of JAX as Orbax records it: attributes and dict keys as text, places in sequences as numbers."""
    from jax.tree_util import DictKey, GetAttrKey, SequenceKey

    if isinstance(key, SequenceKey):
        return int(key.idx)
    if isinstance(key, GetAttrKey):
        return str(key.name)
    return str(key.key) if isinstance(key, DictKey) else int(key.key)


def _empty_name(node: Any) -> str:
    """How ``_METADATA`` calls an empty node: ``{}``, ``[]`` and ``()`` by their type, all others None."""
    kind = type(node)
    return kind.__name__.capitalize() if kind in (dict, list, tuple) else "None"


def _leaf(value: Any) -> LeafSpec:
    """What Orbax would store of a leaf."""
    import jax
    import numpy as np

    if isinstance(value, str):
        return LeafSpec(kind=LeafKind.STRING, dtype="str")
    if isinstance(value, bool | int | float | complex) and not isinstance(value, np.generic):
        return LeafSpec(kind=LeafKind.SCALAR, dtype=str(np.asarray(value).dtype))
    if not hasattr(value, "dtype"):  # Orbax refuses to save it
        return LeafSpec(kind=LeafKind.STRING, dtype=type(value).__qualname__)
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        return _key(jax.ShapeDtypeStruct(value.shape, value.dtype))
    kind = LeafKind.NUMPY if isinstance(value, np.ndarray | np.generic) else LeafKind.ARRAY
    return LeafSpec(kind=kind, shape=tuple(value.shape), dtype=np.dtype(value.dtype).name)


def _key(abstract: Any) -> LeafSpec:
    """A typed PRNG key, by the shape and dtype of its data."""
    import jax

    names: list[str] = []

    def taken_apart(key: Any) -> Any:
        names.append(str(jax.random.key_impl(key)))
        return jax.random.key_data(key)

    held = jax.eval_shape(taken_apart, abstract)
    return LeafSpec(
        kind=LeafKind.KEY, shape=tuple(held.shape), dtype=str(held.dtype), key_impl=names[0]
    )
