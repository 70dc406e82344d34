"""What is nested: a tree of leaves as nodes, and plain containers; one walk over each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeAlias, TypeVar

from surgery_cli.tree.paths import Key, LeafPath

Leaf = TypeVar("Leaf")
Position: TypeAlias = tuple[Key, ...]
"""Where a value stands in plain containers: mapping keys and list indices from the root."""


class Branch(dict[Key, "Branch[Leaf] | Leaf"], Generic[Leaf]):
    """A node of a tree: its children by key, in stored order."""


def nested(tree: Mapping[LeafPath, Leaf]) -> Branch[Leaf] | Leaf:
    """The tree as nodes; a leaf that is the whole tree as it is.

    >>> nested({LeafPath(("a", 0)): 1, LeafPath(("b",)): 2})
    {'a': {0: 1}, 'b': 2}
    """
    root: Branch[Leaf] = Branch()
    for path, leaf in tree.items():
        if not path:
            return leaf
        node = root
        for key in path[:-1]:
            child = node.setdefault(key, Branch())
            assert isinstance(child, Branch)
            node = child
        node[path[-1]] = leaf
    return root


def walk(
    subtree: Branch[Leaf] | Leaf, path: LeafPath = LeafPath()
) -> Iterator[tuple[LeafPath, Branch[Leaf] | Leaf]]:
    """What stands at ``path`` and below, nodes and leaves: each node before its children, in stored order."""
    yield path, subtree
    if isinstance(subtree, Branch):
        for key, child in subtree.items():
            yield from walk(child, path / (key,))


def leaves(
    subtree: Branch[Leaf] | Leaf, path: LeafPath = LeafPath()
) -> Iterator[tuple[LeafPath, Leaf]]:
    """The leaves of what stands at ``path``.

    >>> [str(path) for path, _ in leaves(nested({LeafPath(("a", 0)): 1, LeafPath(("b",)): 2}))]
    ['a/0', 'b']
    """
    return ((at, found) for at, found in walk(subtree, path) if not isinstance(found, Branch))


def mapped(value: Any, change: Callable[[Any], Any] = lambda item: item) -> Any:
    """Plain containers, mappings as dicts and sequences as lists, with every item in them changed.

    >>> mapped({"a": (1, [2])}, lambda item: -item)
    {'a': [-1, [-2]]}
    """
    if isinstance(value, dict):
        return {key: mapped(inner, change) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [mapped(inner, change) for inner in value]
    return change(value)


def contents(value: Any, position: Position = ()) -> Iterator[tuple[Position, Any]]:
    """The keys and items of plain containers, with their places; that of a key is that of its item.

    >>> list(contents({"a": [1]}))
    [(('a',), 'a'), (('a', 0), 1)]
    """
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*position, key), key
            yield from contents(inner, (*position, key))
    elif isinstance(value, list | tuple):
        for at, inner in enumerate(value):
            yield from contents(inner, (*position, at))
    else:
        yield position, value
