"""The shape of a tree after an edit of places: which keys stand below a node, which lists have holes."""

from __future__ import annotations

from collections.abc import Iterable

from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import PlanError, Problem
from surgery_cli.optimizer.detect.params_root import is_optimizer_name
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.lists import listed


class NodeKeys:
    """What stands below each node of a tree: a name, the indices."""

    def __init__(self, leaves: Iterable[LeafPath]) -> None:
        self._names: dict[LeafPath, str] = {}
        self._indices: dict[LeafPath, set[int]] = {}
        known: set[LeafPath] = set()
        for leaf in leaves:
            child = leaf
            while child:
                node, key = child.parent, child[-1]
                if isinstance(key, int):
                    self._indices.setdefault(node, set()).add(key)
                else:
                    self._names.setdefault(node, key)
                if node in known:
                    break
                known.add(node)
                child = node

    def holes(self, containers: Iterable[LeafPath]) -> dict[LeafPath, list[int]]:
        """The lists among ``containers`` whose indices are not 0 to n - 1, with the indices they have."""
        present = {node: self._indices[node] for node in containers if node in self._indices}
        return {node: sorted(found) for node, found in present.items() if max(found) >= len(found)}

    def refuse_mixed(self) -> None:
        """A container has names or indices, never both."""
        raise_all(
            Problem(
                f"'{node or '(root)'}' would have both names and indices",
                why=f"'{self._names[node]}' is a name, {min(found)} is an index of a list",
                fix="a container is a dict or a list: choose another place",
                path=str(node),
                field="to",
            )
            for node, found in self._indices.items()
            if node in self._names
        )


def indices_text(found: list[int]) -> str:
    """Indices for a message: ``index 1``, ``the indices 0, 2``."""
    shown = listed(found, 6)
    return f"index {shown}" if len(found) == 1 else f"the indices {shown}"


class OptimizerState:
    """Which nodes belong to the optimizer state: where its slots stand, or what is called so.

    The name is needed for states that hold no slots, such as sgd's.
    """

    def __init__(self, draft: Draft) -> None:
        self._roots: set[LeafPath] = set()
        for slot in draft.slots.values():
            if slot.in_optimizer:
                pairs = zip(slot.path, slot.param, strict=False)
                shared = next((i for i, (a, b) in enumerate(pairs) if a != b), 0)
                self._roots.add(LeafPath(slot.path[: shared + 1]))

    def holds(self, node: LeafPath) -> bool:
        """True if ``node`` is part of the optimizer state."""
        is_called_so = any(map(is_optimizer_name, node))
        return is_called_so or any(node[: len(root)] == root for root in self._roots)


def lists_in(paths: Iterable[LeafPath]) -> set[LeafPath]:
    """Every list that one of ``paths`` runs through."""
    return {
        LeafPath(path[:depth])
        for path in paths
        for depth, key in enumerate(path)
        if isinstance(key, int)
    }


def nodes_above(leaves: Iterable[LeafPath]) -> set[LeafPath]:
    """Every node above a leaf, the root included."""
    found: set[LeafPath] = {LeafPath()}
    for leaf in leaves:
        node = leaf.parent
        while node not in found:
            found.add(node)
            node = node.parent
    return found


def raise_all(problems: Iterable[Problem]) -> None:
    """Raise the problems together."""
    found = list(problems)
    if found:
        raise PlanError.of(found)
