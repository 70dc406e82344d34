"""A training script's own tree, from shapes alone: what Orbax would store of the pytree that a function returns."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from surgery_cli.script.optimizers import Holders, Optimizer, is_transformation
from surgery_cli.script.pytrees import children_of
from surgery_cli.tree.paths import Key, LeafPath
from surgery_cli.tree.sharding import Mesh, NamedSharding, trimmed
from surgery_cli.tree.specs import LeafKind, LeafSpec, TreeSpec

Named = TypeVar("Named")


class AbstractTree(msgspec.Struct, frozen=True):
    """The leaves of a pytree as Orbax would store them, and the classes of the nodes above them.

    ``classes`` are qualified names, such as ``optax._src.transform.ScaleByAdamState``. ``unboxed`` gives, for leaves
    of NNX modules (which scripts save with or without the last key ``value``), the path without it. ``of_objects`` are
    the paths where a script saves an NNX object itself, not its state: tuples stay tuples, and empties stand beside the
    leaves, given with their specs.
    ``optimizers`` are the transformations that made the optimizer states, by the path of the state; more than one if
    several fit it.
    """

    tree: TreeSpec
    classes: dict[LeafPath, str] = {}
    unboxed: dict[LeafPath, LeafPath] = {}
    of_objects: dict[LeafPath, LeafSpec | None] = {}
    optimizers: dict[LeafPath, list[Optimizer]] = {}
    returned: dict[LeafPath, LeafPath] = {}
    """Where each leaf stands in what the function returns."""

    def spelling(self, stored: TreeSpec) -> Callable[[LeafPath], LeafPath]:
        """How ``stored`` spells the path of a leaf, which differs for what stands in modules."""
        objects = {_texts(path): path for path in self.of_objects if path in stored}

        def place(path: LeafPath) -> LeafPath:
            boxless = self.unboxed.get(path)
            if boxless is not None and boxless in stored:
                return boxless
            return objects.get(_texts(path), path)

        return place

    def saved_as(self, stored: TreeSpec) -> TreeSpec:
        """The tree, with what stands in modules spelled as ``stored`` spells it."""
        empties = {path: spec for path, spec in self.of_objects.items() if spec and path in stored}
        return TreeSpec({**empties, **self.tree.mapped(self.spelling(stored))})

    def placed(self, place: Callable[[LeafPath], LeafPath | None]) -> AbstractTree:
        """The tree with other paths; what gets none is left out."""

        def moved(named: Mapping[LeafPath, Named]) -> dict[LeafPath, Named]:
            places = ((place(path), value) for path, value in named.items())
            return {path: value for path, value in places if path is not None}

        unboxed = {path: place(boxless) for path, boxless in self.unboxed.items()}
        return AbstractTree(
            TreeSpec(moved(self.tree)),
            moved(self.classes),
            moved({path: boxless for path, boxless in unboxed.items() if boxless is not None}),
            moved(self.of_objects),
            moved(self.optimizers),
            moved(self.returned),
        )

    def below(self, key: Key) -> AbstractTree:
        """The part below a key of the root."""
        return self.placed(lambda path: LeafPath(path[1:]) if path[:1] == (key,) else None)


def abstract_tree(function: Callable[[], Any]) -> AbstractTree:
    """Evaluate ``function`` under ``jax.eval_shape`` and describe the pytree that it returns.

    No array is allocated and no accelerator started. The pytree is looked at while it is traced, so that Python
    numbers, strings and NumPy arrays are seen as what they are.
    """
    import jax

    found: list[AbstractTree] = []

    def traced() -> None:
        with settable_mesh():
            found.append(described(function()))

    jax.eval_shape(traced)
    return found[0]


def described(pytree: Any) -> AbstractTree:
    """The leaves and classes of a pytree of arrays, tracers, ``ShapeDtypeStruct``, numbers and strings."""
    found = AbstractTree(TreeSpec({}), {}, {}, {}, {})
    leaves: dict[LeafPath, LeafSpec] = {}
    holders = Holders()
    _walk(pytree, LeafPath(), leaves, found, holders, is_module=False)
    return msgspec.structs.replace(
        found,
        tree=TreeSpec(leaves),
        optimizers=holders.optimizers(),
        returned={path: path for path in leaves},
    )


def leaves_of(
    node: Any, path: LeafPath = LeafPath(), *, is_module: bool = False
) -> Iterator[tuple[LeafPath, Any]]:
    """The leaves of a pytree themselves, by the paths that ``described`` gives them, but for empties."""
    _, is_module, children = _taken_apart(node, is_module=is_module)
    for key, child in children:
        if key is None:
            yield path, child
        else:
            yield from leaves_of(child, path / (key,), is_module=is_module)


def _taken_apart(node: Any, *, is_module: bool) -> tuple[Any, bool, list[tuple[Key | None, Any]]]:
    """A node as scripts save it, of an NNX module its state; whether it is of one; and what stands below it."""
    nnx = sys.modules.get("flax.nnx")
    if nnx is not None and isinstance(node, nnx.Pytree) and not isinstance(node, nnx.Variable):
        node, is_module = nnx.state(node), True
    return node, is_module, [pair for pair in children_of(node) if not is_transformation(pair[1])]


def _walk(
    node: Any,
    path: LeafPath,
    leaves: dict[LeafPath, LeafSpec],
    found: AbstractTree,
    holders: Holders,
    *,
    is_module: bool,
) -> None:
    """Add what stands at and below ``path``. ``is_module``: inside of an NNX module."""
    nnx = sys.modules.get("flax.nnx")
    saved, is_of_module, children = _taken_apart(node, is_module=is_module)
    if saved is not node and not is_module:
        holders.add_module(path, node)
        found.of_objects.update(_as_object(node, path))
    elif not is_module:
        holders.add(path, node)
    node, is_module = saved, is_of_module
    if len(children) == 1 and children[0][0] is None:
        leaves[path] = _leaf(node)
        return
    found.classes[path] = f"{type(node).__module__}.{type(node).__qualname__}"
    if not children:
        leaves[path] = LeafSpec(kind=LeafKind.EMPTY, empty=_empty_name(node))
    is_variable = is_module and nnx is not None and isinstance(node, nnx.Variable)
    for key, child in children:
        assert key is not None
        if is_variable and len(children) == 1:
            found.unboxed[path / (key,)] = path
        _walk(child, path / (key,), leaves, found, holders, is_module=is_module)


def _texts(path: LeafPath) -> tuple[str, ...]:
    return tuple(map(str, path))


def _as_object(node: Any, path: LeafPath) -> Iterator[tuple[LeafPath, LeafSpec | None]]:
    """The leaves of an NNX object as a pytree, with the specs of those that are empty: no ``nnx.state`` has them."""
    children = children_of(node)
    if not children:
        yield path, LeafSpec(kind=LeafKind.EMPTY, empty=_empty_name(node))
    for key, child in children:
        if key is None:
            yield path, None
        else:
            yield from _as_object(child, path / (key,))


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
    if isinstance(value, np.generic | complex) and not isinstance(value, float):
        module = "" if type(value) is complex else "numpy."
        return LeafSpec(kind=LeafKind.NO_TARGET, dtype=f"{module}{type(value).__name__}")
    if isinstance(value, int | float):
        return LeafSpec(kind=LeafKind.SCALAR, dtype=str(np.asarray(value).dtype))
    if not hasattr(value, "dtype"):  # Orbax refuses to save it
        return LeafSpec(kind=LeafKind.STRING, dtype=type(value).__qualname__)
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        return _key(jax.ShapeDtypeStruct(value.shape, value.dtype))
    kind = LeafKind.NUMPY if isinstance(value, np.ndarray) else LeafKind.ARRAY
    return LeafSpec(
        kind=kind,
        shape=tuple(value.shape),
        dtype=np.dtype(value.dtype).name,
        sharding=_sharding(value),
    )


def _sharding(value: Any) -> str | None:
    """How a leaf is spread over a mesh, as Orbax says it on disk; None if it is not, or nobody says.

    Of an axis that is ``UNCONSTRAINED`` nobody says it: a compiler will, for the array of a computation.
    """
    import jax

    open_axis = getattr(jax.sharding.PartitionSpec, "UNCONSTRAINED", None)

    try:  # of a tracer, what is spread is a part of its type
        sharding = getattr(value, "sharding", None) or jax.typeof(value).sharding
    except (AttributeError, TypeError, ValueError):
        return None
    if not isinstance(sharding, jax.sharding.NamedSharding) or not sharding.mesh.axis_names:
        return None
    if any(part is open_axis for part in sharding.spec if part is not None):
        return None
    parts = [part if isinstance(part, tuple) else (part,) for part in sharding.spec if part != ()]
    partition = trimmed(tuple(name for name in part if isinstance(name, str)) for part in parts)
    types = getattr(sharding.mesh, "axis_types", None)  # JAX of before had none, or a dict by type
    said = tuple(map(str, types)) if isinstance(types, tuple) else ()
    mesh = msgspec.structs.replace(Mesh.of(dict(sharding.mesh.shape)), axis_types=said)
    return NamedSharding(mesh, partition).text


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


@contextlib.contextmanager
def settable_mesh() -> Iterator[None]:
    """While the block runs, within a trace, ``jax.set_mesh`` sets the mesh without its devices.

    ``jax.set_mesh`` itself refuses to run within a trace, where ``use_abstract_mesh`` is its like. The mesh stands
    until the end of the block, or of the ``with`` whose context it is. JAX of before either has none of this.
    """
    import jax

    homes = [home for home in (jax, jax.sharding) if hasattr(home, "set_mesh")]
    if not homes or not hasattr(jax.sharding, "use_abstract_mesh"):
        yield
        return
    real = homes[0].set_mesh
    with contextlib.ExitStack() as standing:

        class SetMesh:
            """Sets a mesh at once, and takes it back at the end of a ``with``."""

            def __init__(self, mesh: Any) -> None:
                self._own = contextlib.ExitStack()
                if mesh is not None:
                    self._own.enter_context(jax.sharding.use_abstract_mesh(mesh.abstract_mesh))
                standing.push(self._own)

            def __enter__(self) -> None:
                pass

            def __exit__(self, *_: object) -> None:
                self._own.close()

        for home in homes:
            home.set_mesh = SetMesh
        try:
            yield
        finally:
            for home in homes:
                home.set_mesh = real
