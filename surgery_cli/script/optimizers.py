"""The optax transformations that a returned pytree holds beside its arrays, each with its state and its params."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from surgery_cli.script.pytrees import children_of, plain_path, stored_leaves
from surgery_cli.tree.paths import LeafPath

_DEEP: Final = 2
"""How far inside a module a model is looked for, in steps from its root."""

Table: TypeAlias = dict[LeafPath, tuple[int, ...]]
"""The shapes of a state, by plain path."""


class Optimizer(msgspec.Struct, frozen=True):
    """An optax transformation, and its params as shapes; ``params`` is None where none fit its state."""

    transformation: Any
    params: Any


def is_transformation(value: Any) -> bool:
    """True for what optax makes: something with ``init`` and ``update``. It is no part of a checkpoint.

    What holds arrays is, whatever its methods are called: ``nnx.Rngs`` answers to every name with a stream.
    """
    if isinstance(value, Mapping | type):
        return False
    named = all(callable(getattr(value, name, None)) for name in ("init", "update"))
    return named and not any(hasattr(leaf, "dtype") for _, leaf in stored_leaves(value))


class Holders:
    """The nodes of a pytree that may hold transformations, gathered while it is walked through."""

    def __init__(self) -> None:
        self._plain: list[tuple[LeafPath, Any]] = []
        self._nnx: list[tuple[LeafPath, Any]] = []
        self._models: list[Any] = []

    def add(self, path: LeafPath, node: Any) -> None:
        """A node that is no module of Flax NNX: a train state, a dict, an object of the user's own class."""
        if any(is_transformation(value) for value in _attributes(node).values()):
            self._plain.append((path, node))

    def add_module(self, path: LeafPath, module: Any) -> None:
        """An object of Flax NNX, with all that it holds."""
        nnx = sys.modules["flax.nnx"]
        inside = sorted(nnx.iter_graph(module), key=lambda found: len(found[0]))
        for place, node in inside:
            if not isinstance(node, nnx.Pytree) or isinstance(node, nnx.Variable):
                continue
            if is_transformation(_attributes(node).get("tx")) and hasattr(node, "opt_state"):
                self._nnx.append((LeafPath((*path, *map(str, place))), node))
            elif isinstance(node, nnx.Module) and len(place) <= _DEEP:
                self._models.append(node)

    def optimizers(self) -> dict[LeafPath, list[Optimizer]]:
        """The transformations that may have made a state, by the path of the state.

        More than one where a node holds several of which each would make this state.
        """
        found: dict[LeafPath, list[Optimizer]] = {}
        for path, node in self._plain:
            for key, optimizer in _of_plain(node):
                found.setdefault(path / (key,), []).append(optimizer)
        for path, node in self._nnx:
            found[path / ("opt_state",)] = [self._of_nnx(node)]
        return found

    def _of_nnx(self, optimizer: Any) -> Optimizer:
        """The optimizer with the params of its own model, of one that is returned beside it, or of its own state."""
        nnx: Any = sys.modules["flax.nnx"]
        models = [*filter(None, [getattr(optimizer, "model", None)]), *self._models]
        wrt = getattr(optimizer, "wrt", nnx.Param)
        states = sorted(_states(optimizer.opt_state, nnx.State), key=_size, reverse=True)
        made = _table(optimizer.opt_state)
        for params in (*states[:_DEEP], *(nnx.state(model, wrt) for model in models)):
            shapes = shapes_of(params)
            if made_by(optimizer.tx, shapes) == made:
                return Optimizer(optimizer.tx, shapes)
        return Optimizer(optimizer.tx, None)


def _of_plain(node: Any) -> Iterator[tuple[Any, Optimizer]]:
    """The transformations of a node with the keys of their states: those that its own params would give."""
    attributes = _attributes(node)
    if all(name in attributes for name in ("tx", "params", "opt_state")):
        made = _table(attributes["opt_state"])
        params = shapes_of(attributes["params"])
        inner = params.get("params") if isinstance(params, Mapping) else None
        if inner is not None and made_by(attributes["tx"], inner) == made:
            params = inner
        yield "opt_state", Optimizer(attributes["tx"], params)
        return
    parts = {key: child for key, child in children_of(node) if key is not None}
    tables = {key: _table(child) for key, child in parts.items() if not is_transformation(child)}
    for transformation in filter(is_transformation, attributes.values()):
        fitting: dict[Any, Optimizer] = {}
        for key in tables:
            shapes = shapes_of(parts[key])
            makes = made_by(transformation, shapes)
            for other, table in tables.items():
                if makes and other != key and table == makes:
                    fitting.setdefault(other, Optimizer(transformation, shapes))
        yield from fitting.items()


def _attributes(node: Any) -> dict[str, Any]:
    """What a node holds by name, whether JAX sees it or not."""
    if isinstance(node, Mapping):
        return {str(key): value for key, value in node.items()}
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        return {f.name: getattr(node, f.name, None) for f in dataclasses.fields(node)}
    if isinstance(node, tuple | list):
        names = getattr(node, "_fields", range(len(node)))
        return {str(name): value for name, value in zip(names, node, strict=True)}
    return dict(getattr(node, "__dict__", {}))


def shapes_of(pytree: Any) -> Any:
    """The pytree with a ``ShapeDtypeStruct`` for each array."""
    import jax
    import jax.numpy as jnp

    def one(leaf: Any) -> Any:
        return jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf))

    return jax.tree.map(lambda leaf: leaf if isinstance(leaf, str) else one(leaf), pytree)


def made_by(transformation: Any, shapes: Any) -> Table | None:
    """The state that a transformation makes of params; None if it makes none of these."""
    import jax

    try:
        return _table(jax.eval_shape(transformation.init, shapes))
    except Exception:  # noqa: BLE001 - code of the user's, tried on what may not be its params
        return None


def _table(state: Any) -> Table:
    """The shapes of a state by path, in whatever containers they stand."""
    return {plain_path(path): _stored_shape(leaf) for path, leaf in stored_leaves(state)}


def _stored_shape(leaf: Any) -> tuple[int, ...]:
    """The shape in which a leaf is stored: of a typed PRNG key, that of its data."""
    import jax

    if hasattr(leaf, "dtype") and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.eval_shape(jax.random.key_data, leaf)
    return tuple(getattr(leaf, "shape", ()))


def _size(pytree: Any) -> int:
    return sum(1 for _ in stored_leaves(pytree))


def _states(node: Any, kind: type) -> Iterable[Any]:
    """The topmost nodes of a class."""
    if isinstance(node, kind):
        return [node]
    return [
        found
        for key, child in children_of(node)
        if key is not None
        for found in _states(child, kind)
    ]
