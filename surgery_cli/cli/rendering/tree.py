"""Leaves as a tree of nodes, folded at a depth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from surgery_cli.cli.rendering.series import LeafSeries
from surgery_cli.tree.spelling import shown


class Line(NamedTuple):
    """One line of the tree: a leaf or a series of them, or a node (``leaf`` is None) with what stands below it."""

    depth: int
    name: str
    path: str
    leaf: LeafSeries | None
    leaves: int
    bytes: int
    is_folded: bool = False


class _Node:
    def __init__(self, path: str) -> None:
        self.path = path
        self.children: dict[str, _Node] = {}
        self.leaf: LeafSeries | None = None
        self.leaves = 0
        self.bytes = 0


def keys_of(row: LeafSeries) -> list[str]:
    """The keys of a leaf, spelled: a key may hold slashes, which are not those between keys."""
    return row.exact.split("/")


def line_of(leaf: LeafSeries) -> Line:
    """The line of a leaf, or of a series of them, that is said by its whole path."""
    return Line(0, leaf.name, leaf.name, leaf, len(leaf.rows), leaf.bytes)


def lines(rows: Iterable[LeafSeries], depth: int | None) -> Iterator[Line]:
    """The lines of the tree in stored order; nodes at ``depth`` keys are folded to one line."""
    root = _Node("")
    for row in rows:
        _insert(root, row)
    yield from _walk(root, 0, depth)


def fitting_depth(rows: Iterable[LeafSeries], most: int) -> int | None:
    """The largest depth at which the tree has at most ``most`` lines; None if all of it has."""
    by_depth: dict[int, set[tuple[str, ...]]] = {}
    for row in rows:
        keys = keys_of(row)
        for size in range(1, len(keys) + 1):
            by_depth.setdefault(size, set()).add(tuple(keys[:size]))
    total = 0
    for depth in sorted(by_depth):
        total += len(by_depth[depth])
        if total > most:
            return max(depth - 1, 1)
    return None


def _insert(root: _Node, row: LeafSeries) -> None:
    node = root
    for key in keys_of(row):
        node.leaves += len(row.rows)
        node.bytes += row.bytes
        path = f"{node.path}/{key}" if node is not root else key
        # a leaf and a node may print alike: a dict key '0' beside a list index 0
        if key not in node.children:
            node.children[key] = _Node(path)
        node = node.children[key]
    while node.leaf is not None:
        node = node.children.setdefault("", _Node(node.path))
    node.leaf = row
    node.leaves += len(row.rows)
    node.bytes += row.bytes


def _walk(node: _Node, depth: int, limit: int | None) -> Iterator[Line]:
    for name, child in node.children.items():
        path = shown(child.path)
        if child.leaf is not None:
            yield Line(
                depth, shown(name) or ".", path, child.leaf, len(child.leaf.rows), child.leaf.bytes
            )
        if child.children:
            is_folded = limit is not None and depth + 1 >= limit
            yield Line(depth, f"{shown(name)}/", path, None, child.leaves, child.bytes, is_folded)
            if not is_folded:
                yield from _walk(child, depth + 1, limit)
