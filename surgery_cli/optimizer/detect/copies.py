"""Which of several trees the nodes of states mirror, as a whole or in part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Final, TypeAlias

from surgery_cli.optimizer.detect.mirrors import (
    Branch,
    Mirror,
    Node,
    fingerprint,
    is_param,
    mirror,
    node_fingerprint,
    path_of,
)
from surgery_cli.optimizer.detect.params_root import descents
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import TreeSpec

Keys: TypeAlias = tuple[object, ...]

_WHOLE: Final[frozenset[Keys]] = frozenset({()})
"""The keys of what mirrors all of a tree."""


class Copies:
    """The nodes of states that mirror trees, and the trees that they mirror."""

    def __init__(self, tree: TreeSpec, trees: Sequence[Branch]) -> None:
        self._tree, self._trees = tree, trees
        self._marks: dict[LeafPath, int] = {}
        self._index: dict[int, list[LeafPath]] = {}
        """The trees by their fingerprints."""
        self.fields: dict[LeafPath, frozenset[Keys]] = {}
        """The nodes that mirror a tree, or a part of it, and the keys in it of what they mirror."""
        for one in trees:
            self.mark(one)
            for node in descents(one):
                if isinstance(node, Node) and arrays_of(tree, node):
                    self._index.setdefault(self._marks[node.path], []).append(path_of(one))

    @property
    def alike(self) -> Iterable[list[LeafPath]]:
        """The trees, those together that are just alike."""
        return self._index.values()

    def mark(self, branch: Branch) -> int:
        """Keep the fingerprints of a node and of all below it, which is looked at next."""
        if isinstance(branch, LeafPath):
            return fingerprint(branch, self._tree)
        mark = node_fingerprint((key, self.mark(child)) for key, child in branch.children.items())
        self._marks[branch.path] = mark
        return mark

    def mirrored_by(self, node: Node) -> list[LeafPath]:
        """The trees of which a node has names and shapes, all of them if it has those of all of some."""
        if alike := self._index.get(self._marks[node.path]):
            self.fields[node.path] = _WHOLE
            return alike
        whole: list[LeafPath] = []
        partly: list[LeafPath] = []
        for tree in self._trees:
            found = next(filter(None, (self._mirror(x, node) for x in descents(tree))), None)
            if found is not None:
                (partly if found.missing else whole).append(path_of(tree))
                covered = frozenset(tuple(one.leaf[len(node.path) :]) for one in found.pairs)
                is_whole = not (found.missing or found.holes)
                self.fields[node.path] = _WHOLE if is_whole else covered
        return whole or partly

    def _mirror(self, params: Branch, node: Node) -> Mirror | None:
        found = mirror(params, node, self._tree) if isinstance(params, Node) else None
        return found if found is not None and found.pairs and found.relation == "same" else None

    def overlap(self, fields: Collection[LeafPath]) -> bool:
        """True if two fields of one name mirror the same params."""
        covered = [(path[-1], keys) for path in fields for keys in self.fields.get(path, ())]
        names = Counter(path[-1] for path in fields)
        wholes = (path for path in fields if self.fields.get(path) == _WHOLE)
        return len({*covered}) < len(covered) or any(names[path[-1]] > 1 for path in wholes)


def arrays_of(tree: TreeSpec, branch: Branch) -> list[LeafPath]:
    """The leaves below a node that are arrays of several floating numbers."""
    leaves = branch.leaves() if isinstance(branch, Node) else [branch]
    return [leaf for leaf in leaves if is_param(tree[leaf]) and tree[leaf].size > 1]
