"""Params-shaped trees: a tree of nodes, and how one part of it mirrors another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec, TreeSpec, is_complex, is_floating, is_integer


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
        _node_at(path.parent, nodes).children[str(path[-1])] = path
    for node in list(nodes.values()):
        only = node.children.get("value")
        if len(node.children) == 1 and isinstance(only, LeafPath) and node.path:
            nodes[node.path[:-1]].children[str(node.path[-1])] = only
    return nodes[()]


def _node_at(path: LeafPath, nodes: dict[tuple[str | int, ...], Node]) -> Node:
    node = nodes.get(path)
    if node is None:
        node = nodes[path] = Node(path)
        _node_at(path.parent, nodes).children[str(path[-1])] = node
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

    ``holes`` are (param or node of params, empty leaf). ``missing`` counts params without leaf or hole.
    """

    node: LeafPath
    root: LeafPath
    pairs: list[Pair]
    holes: list[tuple[LeafPath, LeafPath]]
    missing: int


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
    found = Mirror(path_of(state), path_of(params), [], [], 0)
    missing = _compare(params, state, tree, names, found)
    return None if missing is None else found._replace(missing=missing)


def _compare(
    params: Branch, state: Branch, tree: TreeSpec, names: frozenset[str], found: Mirror
) -> int | None:
    """Add the pairs and holes; the number of params that are missing, None if the state does not fit."""
    if isinstance(state, LeafPath) and tree[state].kind is LeafKind.EMPTY:
        found.holes.append((path_of(params), state))
        return 0
    if isinstance(params, LeafPath):
        return _compare_leaf(params, state, tree, names, found)
    if isinstance(state, LeafPath):
        return None
    missing = 0
    if not state.children.keys() <= params.children.keys():
        return None
    for key, part in params.children.items():
        child = state.children.get(key)
        if child is None:
            missing += sum(is_param(tree[p]) for p in _leaves(part))
            continue
        below = _compare(part, child, tree, names, found)
        if below is None:
            return None
        missing += below
    return missing


def _leaves(branch: Branch) -> Iterator[LeafPath]:
    if isinstance(branch, Node):
        yield from branch.leaves()
    else:
        yield branch


def _compare_leaf(
    param: LeafPath, state: Branch, tree: TreeSpec, names: frozenset[str], found: Mirror
) -> int | None:
    """As ``_compare``, at a param."""
    spec = tree[param]
    if not is_param(spec):
        return 0 if isinstance(state, LeafPath) else None
    if isinstance(state, LeafPath):
        here = tree[state]
        if is_integer(here.dtype) or here.kind in (LeafKind.KEY, LeafKind.STRING):
            return None
        if here.dtype == "bool" and here.shape:
            return None
        found.pairs.append(Pair(param, state, ""))
        return 0
    keys = set(state.children)
    axes = {str(axis) for axis in range(len(spec.shape))}
    halves = {"real", "imaginary"} if is_complex(spec.dtype) else set()
    if keys not in (axes, halves) and not keys <= names:
        return None
    for key, leaf in state.children.items():
        if not isinstance(leaf, LeafPath):
            return None
        if tree[leaf].kind is LeafKind.EMPTY:
            found.holes.append((param, leaf))
        else:
            found.pairs.append(Pair(param, leaf, key))
    return 0


def relation(pairs: Sequence[Pair], tree: TreeSpec) -> str | None:
    """How the shapes of a group follow from the params' shapes; None if no rule fits all of them.

    A rule that holds for every leaf is looked for, from the strictest on; params without axes fit any.
    """
    if any(pair.tail.isdigit() for pair in pairs):
        fits = all(_is_axis(tree[p.param].shape, tree[p.leaf].shape, p.tail) for p in pairs)
        return "axis" if fits else None
    shapes = [(tree[pair.param].shape, tree[pair.leaf].shape) for pair in pairs]
    return next((name for name, fits in _RULES if all(fits(p, s) for p, s in shapes)), None) or (
        "stacked" if _are_stacked(shapes) else None
    )


Shape: TypeAlias = tuple[int, ...]


def _is_axis(param: Shape, slot: Shape, tail: str) -> bool:
    return tail.isdigit() and slot == (param[int(tail)],)


def _are_stacked(shapes: list[tuple[Shape, Shape]]) -> bool:
    """True if every slot has one more leading axis, of one length for all."""
    return (
        all(len(s) == len(p) + 1 and s[1:] == p for p, s in shapes)
        and len({s[0] for _, s in shapes}) == 1
    )


def is_reduced(param: Shape, slot: Shape) -> bool:
    """True if ``slot`` is ``param`` without some of its axes, in order."""
    rest = iter(param)
    return len(slot) < len(param) and all(size in rest for size in slot)


_RULES: tuple[tuple[str, Callable[[Shape, Shape], bool]], ...] = (
    ("same", lambda p, s: s == p),
    ("scalar", lambda p, s: s == ()),
    ("one", lambda p, s: s == (1,)),
    ("factored", lambda p, s: s in (p, (1,)) or (len(p) > 1 and s != () and is_reduced(p, s))),
)


def leaf_relation(group: str, param: Shape, slot: Shape) -> str:
    """The relation of one leaf of a group: a factored group has whole and unused leaves too."""
    if group != "factored":
        return group
    return "same" if slot == param else "one" if slot == (1,) else "factored"


class Shapes:
    """Finds nodes of the params by their whole structure: names and shapes of everything below."""

    def __init__(self, params: Branch, tree: TreeSpec) -> None:
        self._tree = tree
        self._nodes: dict[int, list[Branch]] = {}
        self._index(params)

    def equal_to(self, state: Branch) -> list[Branch]:
        """The nodes of the params that look exactly like ``state``."""
        return self._nodes.get(self._fingerprint(state), [])

    def _index(self, branch: Branch) -> int:
        if isinstance(branch, LeafPath):
            return hash(self._tree[branch].shape)
        mark = hash(frozenset((key, self._index(child)) for key, child in branch.children.items()))
        self._nodes.setdefault(mark, []).append(branch)
        return mark

    def _fingerprint(self, branch: Branch) -> int:
        if isinstance(branch, LeafPath):
            return hash(self._tree[branch].shape)
        return hash(
            frozenset((key, self._fingerprint(child)) for key, child in branch.children.items())
        )
