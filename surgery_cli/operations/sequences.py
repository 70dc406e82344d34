"""The shape of a tree after an edit of places: which keys stand below a node, which lists have holes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import Problem, raise_all
from surgery_cli.optimizer.detect.params_root import is_optimizer_name
from surgery_cli.tree.paths import Key, LeafPath
from surgery_cli.words.advice import worded
from surgery_cli.words.lists import listed
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage

Closing: TypeAlias = Mapping[LeafPath, Mapping[int, int]]
"""Lists whose elements move up, with their new indices by the old ones."""


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


def holes_in(
    leaves: Iterable[LeafPath], containers: Iterable[LeafPath]
) -> dict[LeafPath, list[int]]:
    """The lists among ``containers`` that have a hole, with the indices that they have.

    Raises:
        PlanError: a container would have both names and indices.
    """
    keys = NodeKeys(leaves)
    keys.refuse_mixed()
    return keys.holes(containers)


def gaps_to_close(draft: Draft, holes: Mapping[LeafPath, list[int]]) -> Closing:
    """The lists with ``holes`` whose elements move up: those of the optimizer state never do."""
    optimizer = OptimizerState(draft)
    return {
        node: {old: new for new, old in enumerate(found)}
        for node, found in holes.items()
        if not optimizer.holds(node)
    }


def renumbered(path: LeafPath, closing: Closing) -> LeafPath:
    """Where a leaf or node stands once elements have moved up in the lists of ``closing``."""
    keys: list[Key] = list(path)
    for depth, key in enumerate(path if closing else ()):
        if isinstance(key, int) and (indices := closing.get(LeafPath(path[:depth]))):
            keys[depth] = indices.get(key, key)
    return LeafPath(keys)


def gap_notes(closing: Closing) -> Iterator[Consequence]:
    """For the preview: which lists close a gap."""
    for node, found in sorted(closing.items(), key=lambda each: str(each[0])):
        said = f"{indices_text([*found])} become 0 to {len(found) - 1}"
        yield Consequence(DocsPage.RENAME, f"the list '{node}' closes its gap: {said}")


def hole_left(node: LeafPath, found: list[int], is_literal: bool) -> Problem:
    """A list that lost elements, and keeps the others where they are."""
    why = "positions in the optimizer state have a meaning, so they are never renumbered"
    fix = f"leave '{node}' whole; values in it can be edited or reset"
    if is_literal:
        why = "a list has no holes, and every leaf that is left stays at its path"
        fix = f"keep the whole of '{node}', or `delete` elements of it to renumber the rest"
    what = f"the list '{node}' would keep only {indices_text(found)}"
    return Problem(what, why, fix, path=str(node))


def asked_hole(node: LeafPath, found: list[int]) -> Problem:
    """A list to which an edit gives indices that leave others out."""
    free = next(n for n, index in enumerate((*found, None)) if n != index)
    return Problem(
        f"the list '{node}' would have {indices_text(found)}",
        why="a list has no holes, and the edit says which index each leaf gets",
        fix=worded(
            "the first that is left out is {}; {moves} of `rename` places several at once", free
        ),
        path=str(node),
        field="to",
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
        slots = draft.slots.values()
        self._roots = {slot.whole_state for slot in slots if slot.in_optimizer}

    def holds(self, node: LeafPath) -> bool:
        """True if ``node`` is part of the optimizer state."""
        is_called_so = any(map(is_optimizer_name, node))
        return is_called_so or any(node[: len(root)] == root for root in self._roots)
