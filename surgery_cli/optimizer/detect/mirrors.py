"""Params-shaped trees: a tree of nodes, and how one part of it mirrors another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

from surgery_cli.optimizer.detect.shapes import ShapePair, relation
from surgery_cli.tree.dtypes import is_complex, is_floating, is_integer
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec, TreeSpec


class Node:
    """An inner node: its path and its children by printed key. Leaves are their paths."""

    __slots__ = ("children", "path")

    def __init__(self, path: LeafPath) -> None:
        self.path = path
        self.children: dict[str, Node | LeafPath] = {}

    def leaves(self) -> Iterator[LeafPath]:
        """Every leaf below, in stored order."""
        for child in self.children.values():
            if isinstance(child, Node):
                yield from child.leaves()
            else:
                yield child

    @property
    def is_sequence(self) -> bool:
        """True if the keys are numbers, as in a chain; Flax and NNX print them as text."""
        return bool(self.children) and all(key.isdigit() for key in self.children)

    def in_order(self) -> list[tuple[int, Node | LeafPath]]:
        """The children of a sequence by index."""
        return sorted(
            ((int(key), child) for key, child in self.children.items()), key=lambda x: x[0]
        )


Branch: TypeAlias = Node | LeafPath


def branches(tree: TreeSpec) -> Branch:
    """The tree as nodes; a node whose only child is a leaf ``value`` (Flax NNX) stands for that leaf."""
    nodes: dict[tuple[str | int, ...], Node] = {(): Node(LeafPath())}
    for path in tree:
        if not path:
            return path
        _node_at(path[:-1], nodes).children[str(path[-1])] = path
    for node in list(nodes.values()):
        only = node.children.get("value")
        if len(node.children) == 1 and isinstance(only, LeafPath) and node.path:
            nodes[node.path[:-1]].children[str(node.path[-1])] = only
    return nodes[()]


def _node_at(keys: tuple[str | int, ...], nodes: dict[tuple[str | int, ...], Node]) -> Node:
    node = nodes.get(keys)
    if node is None:
        node = nodes[keys] = Node(LeafPath(keys))
        _node_at(keys[:-1], nodes).children[str(keys[-1])] = node
    return node


def path_of(branch: Branch) -> LeafPath:
    """Where a node or leaf stands."""
    return branch.path if isinstance(branch, Node) else branch


class Pair(NamedTuple):
    """A leaf that stands at a param's place; ``tail`` are the printed keys behind it."""

    param: LeafPath
    leaf: LeafPath
    tail: str


class Mirror(NamedTuple):
    """A node that mirrors (a part of) the params below ``root``.

    ``holes`` are (param or node of params, empty leaf). ``shapes`` are those that stand in ``pairs``, each once.
    ``missing`` counts params without leaf or hole.
    """

    node: LeafPath
    root: LeafPath
    pairs: list[Pair]
    holes: list[tuple[LeafPath, LeafPath]]
    shapes: set[ShapePair]
    missing: int

    @property
    def relation(self) -> str | None:
        """How all shapes follow from the params' shapes, by one rule; None if no rule fits all of them."""
        return relation(self.shapes)

    def by_tail(self) -> dict[str, Mirror]:
        """The parts of the mirror by what stands behind the param's path; the first of them has the holes."""
        parts: dict[str, list[Pair]] = {}
        for pair in self.pairs:
            parts.setdefault(pair.tail, []).append(pair)
        first = next(iter(parts), None)
        return {
            tail: self._replace(
                pairs=pairs,
                holes=self.holes if tail == first else [],
                shapes={shapes for shapes in self.shapes if shapes.tail == tail},
            )
            for tail, pairs in parts.items()
        }


def is_param(spec: LeafSpec) -> bool:
    """True for leaves that an optimizer trains."""
    return spec.kind is not LeafKind.KEY and (is_floating(spec.dtype) or is_complex(spec.dtype))


def mirror(
    params: Branch, state: Branch, tree: TreeSpec, names: frozenset[str] = frozenset()
) -> Mirror | None:
    """How ``state`` mirrors ``params``: every leaf at a param's place; None if one stands elsewhere.

    A param's place may hold a list of leaves (one per axis), ``real`` and ``imaginary``, or leaves of the given
    ``names``.
    """
    comparison = _Comparison(tree, names)
    missing = comparison.missing(params, state)
    if missing is None:
        return None
    pairs, holes, shapes = comparison.pairs, comparison.holes, comparison.shapes
    return Mirror(path_of(state), path_of(params), pairs, holes, shapes, missing)


class _Comparison:
    """Gathers the pairs and holes of a state while it is held against the params."""

    def __init__(self, tree: TreeSpec, names: frozenset[str]) -> None:
        self.pairs: list[Pair] = []
        self.holes: list[tuple[LeafPath, LeafPath]] = []
        self.shapes: set[ShapePair] = set()
        self._tree, self._names = tree, names

    def missing(self, params: Branch, state: Branch) -> int | None:
        """How many params have no leaf in the state; None if the state does not fit."""
        if isinstance(state, LeafPath):
            return self._missing_at_leaf(params, state)
        if isinstance(params, LeafPath):
            return self._missing_below(params, state)
        if not state.children.keys() <= params.children.keys():
            return None
        missing = 0
        for key, part in params.children.items():
            child = state.children.get(key)
            if child is None:
                missing += sum(is_param(self._tree[p]) for p in _leaves(part))
                continue
            below = self.missing(part, child)
            if below is None:
                return None
            missing += below
        return missing

    def _missing_at_leaf(self, params: Branch, leaf: LeafPath) -> int | None:
        """As ``missing``, of a state that is one leaf: a hole for any params, or the slot of one."""
        here = self._tree[leaf]
        if here.kind is LeafKind.EMPTY:
            self.holes.append((path_of(params), leaf))
            return 0
        if isinstance(params, Node):
            return None
        spec = self._tree[params]
        if not is_param(spec):
            return 0
        if is_integer(here.dtype) or here.kind in (LeafKind.KEY, LeafKind.STRING):
            return None
        if here.dtype == "bool" and here.shape:
            return None
        self._pair(params, spec, leaf, here, "")
        return 0

    def _missing_below(self, param: LeafPath, state: Node) -> int | None:
        """As ``missing``, of a state with several leaves at the place of one param."""
        spec = self._tree[param]
        if not is_param(spec):
            return None
        keys = set(state.children)
        axes = {str(axis) for axis in range(len(spec.shape))}
        halves = {"real", "imaginary"} if is_complex(spec.dtype) else set()
        if keys not in (axes, halves) and not keys <= self._names:
            return None
        for key, leaf in state.children.items():
            if not isinstance(leaf, LeafPath):
                return None
            here = self._tree[leaf]
            if here.kind is LeafKind.EMPTY:
                self.holes.append((param, leaf))
            else:
                self._pair(param, spec, leaf, here, key)
        return 0

    def _pair(
        self, param: LeafPath, spec: LeafSpec, leaf: LeafPath, here: LeafSpec, tail: str
    ) -> None:
        self.pairs.append(Pair(param, leaf, tail))
        self.shapes.add(ShapePair(spec.shape, here.shape, tail))


def _leaves(branch: Branch) -> Iterator[LeafPath]:
    if isinstance(branch, Node):
        yield from branch.leaves()
    else:
        yield branch


def fingerprint(branch: Branch, tree: TreeSpec) -> int:
    """A number for the names and shapes of all that stands below a node, or for the shape of a leaf."""
    if isinstance(branch, LeafPath):
        return hash(tree[branch].shape)
    return node_fingerprint((key, fingerprint(x, tree)) for key, x in branch.children.items())


def node_fingerprint(children: Iterable[tuple[str, int]]) -> int:
    """That of a node, by its children's."""
    return hash(frozenset(children))


class Shapes:
    """Finds nodes of the params by their whole structure: names and shapes of everything below."""

    def __init__(self, params: Branch, tree: TreeSpec) -> None:
        self._tree = tree
        self._nodes: dict[int, list[Branch]] = {}
        self._index(params)

    def equal_to(self, state: Branch) -> list[Branch]:
        """The nodes of the params that look exactly like ``state``."""
        return self._nodes.get(fingerprint(state, self._tree), [])

    def _index(self, branch: Branch) -> int:
        if isinstance(branch, LeafPath):
            return fingerprint(branch, self._tree)
        mark = node_fingerprint((key, self._index(x)) for key, x in branch.children.items())
        self._nodes.setdefault(mark, []).append(branch)
        return mark
