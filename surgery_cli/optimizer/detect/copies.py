"""Which of several trees the nodes of states mirror, as a whole or in part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

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
from surgery_cli.optimizer.detect.params_root import descents, networks_in
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import TreeSpec

Keys: TypeAlias = tuple[object, ...]

_WHOLE: Final[frozenset[Keys]] = frozenset({()})
"""The keys of what mirrors all of a tree."""


class Fit(NamedTuple):
    """A tree that a copy may be one of: of all of it, or of the node of it at ``place``."""

    tree: LeafPath
    place: LeafPath


class Copies:
    """The nodes of states that mirror trees, and the trees that they mirror."""

    def __init__(self, tree: TreeSpec, trees: Sequence[Branch]) -> None:
        self._tree, self._trees = tree, trees
        self._marks: dict[LeafPath, int] = {}
        self._index: dict[int, list[Fit]] = {}
        """The trees by their fingerprints, each from every node that may stand for it."""
        self._parts: dict[int, list[Fit]] = {}
        """What stands inside of trees, by its fingerprint."""
        self._networks = [(path_of(one), node) for one in trees for node in networks_in(one)]
        self.fields: dict[LeafPath, frozenset[Keys]] = {}
        """The nodes that mirror a tree, or a part of it, and the keys in it of what they mirror."""
        for one in trees:
            self.mark(one)
            inner = descents(one)
            for node in inner:
                if isinstance(node, Node) and arrays_of(tree, node):
                    fit = Fit(path_of(one), node.path)
                    self._index.setdefault(self._marks[node.path], []).append(fit)
            self._keep_parts(path_of(one), inner[-1])

    def _keep_parts(self, tree: LeafPath, around: Branch) -> None:
        for child in around.children.values() if isinstance(around, Node) else ():
            if isinstance(child, Node):
                mark = self._marks[child.path]
                self._parts.setdefault(mark, []).append(Fit(tree, child.path))
                self._keep_parts(tree, child)

    @property
    def alike(self) -> Iterable[list[LeafPath]]:
        """The trees, those together that are just alike."""
        return [[fit.tree for fit in fits] for fits in self._index.values()]

    def mark(self, branch: Branch) -> int:
        """Keep the fingerprints of a node and of all below it, which is looked at next."""
        if isinstance(branch, LeafPath):
            return fingerprint(branch, self._tree)
        mark = node_fingerprint((key, self.mark(child)) for key, child in branch.children.items())
        self._marks[branch.path] = mark
        return mark

    def mirrored_by(self, node: Node, *, is_field: bool) -> list[Fit]:
        """What a node has the names and shapes of: trees or some of their params, and nodes inside of others.

        Of nodes inside alone only fields of states are copies: below them, all small ones would be. That a copy has
        nothing else, and a network statistics beside its params, does not tell that it is not of these.
        """
        mark = self._marks[node.path]
        found = list(self._index.get(mark, ()))
        if found:
            self.fields[node.path] = _WHOLE
        alike = {fit.tree for fit in found}
        others = (tree for tree in self._trees if path_of(tree) not in alike)
        found += filter(None, (self._fit(tree, node) for tree in others))
        if not (found or is_field):
            return []
        known = {fit.tree for fit in found}
        parts = [fit for fit in self._parts.get(mark, ()) if fit.tree not in known]
        parts += [
            Fit(tree, network.path)
            for tree, network in self._networks
            if tree not in known and self._marks[network.path] != mark
            if self._mirror(network, node)
        ]
        if parts and not found:
            tree, place = parts[0]
            inner = (tuple(leaf[len(node.path) :]) for leaf in arrays_of(self._tree, node))
            self.fields[node.path] = frozenset((*place[len(tree) :], *keys) for keys in inner)
        return found + parts

    def are_all_of(self, field: Node) -> bool:
        """True if all that stands in a field of a state is of trees: of a joint optimizer of several.

        Where a part alone is, it looks like one by chance, or was copied there.
        """
        inner = [child for child in field.children.values() if isinstance(child, Node)]
        return bool(inner) and all(
            self.mirrored_by(one, is_field=False) or self.are_all_of(one) for one in inner
        )

    def _fit(self, tree: Branch, node: Node) -> Fit | None:
        """The tree, if a node has names and shapes of some or all of its params."""
        found = next(filter(None, (self._mirror(x, node) for x in descents(tree))), None)
        if found is None:
            return None
        if self.fields.get(node.path) != _WHOLE:
            covered = frozenset(tuple(one.leaf[len(node.path) :]) for one in found.pairs)
            is_whole = not (found.missing or found.holes)
            self.fields[node.path] = _WHOLE if is_whole else covered
        return Fit(path_of(tree), found.root)

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
