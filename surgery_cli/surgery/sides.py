"""Two checkpoints held against each other: by which path a leaf of the one is that leaf of the other."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from surgery_cli.draft.kernel import Window
from surgery_cli.proof.metadata_files import handlers_of
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.tree.paths import LeafPath


class Side:
    """A checkpoint with the paths by which it is compared: its own, or those of the other one."""

    def __init__(
        self, checkpoint: Checkpoint, renamed: Mapping[LeafPath, LeafPath] | None = None
    ) -> None:
        """``renamed``: leaves that are called otherwise here, each with its own path in the checkpoint."""
        self.checkpoint = checkpoint
        self._own_paths = dict(renamed or {})
        here = {own: path for path, own in self._own_paths.items()}
        self.tree = (
            checkpoint.tree.mapped(lambda path: here.get(path, path)) if here else checkpoint.tree
        )

    def renamed(self, moved: Mapping[LeafPath, LeafPath]) -> Side:
        """The same where leaves are called otherwise, each given with what it is called so far."""
        if not moved:
            return self
        before = set(moved.values())
        kept = {path: own for path, own in self._own_paths.items() if path not in before}
        return Side(
            self.checkpoint, kept | {path: self._own(there) for path, there in moved.items()}
        )

    def _own(self, path: LeafPath) -> LeafPath:
        return self._own_paths.get(path, path)

    def read(self, path: LeafPath, window: Window | None = None) -> Any:
        return self.checkpoint.read(self._own(path), window)

    def identity(self, path: LeafPath) -> Hashable | None:
        return self.checkpoint.identity(self._own(path))

    def expect(self, paths: Iterable[LeafPath]) -> None:
        self.checkpoint.expect(map(self._own, paths))


def sides(one: Checkpoint, other: Checkpoint) -> tuple[Side, Side]:
    """Both with their items' names in front of all paths, where only so it is known what belongs to what.

    A step of which one item is left has no name in front, and its run has.
    """
    if not are_compared_by_items(one, other):
        return Side(one), Side(other)
    return _below_its_item(one), _below_its_item(other)


def are_compared_by_items(one: Checkpoint, other: Checkpoint) -> bool:
    """True if both have items with names, and several stand on one side, or should, or may have stood.

    The single items of two steps are compared whatever they are called, where both are on record to have had no others,
    or by its own path one of them was named.
    """
    here, there = one.location.items.keys(), other.location.items.keys()
    if not all(here) or not all(there):
        return False
    if one.location.prefix_items or other.location.prefix_items:
        return True
    of_one, of_other = handlers_of(one), handlers_of(other)
    are_apart = of_one.keys().isdisjoint(there) and of_other.keys().isdisjoint(here)
    are_steps = one.location.folder_of_items and other.location.folder_of_items
    is_known = bool(of_one and of_other) or not are_steps
    return here != there and not (are_apart and is_known)


def _below_its_item(checkpoint: Checkpoint) -> Side:
    if checkpoint.location.prefix_items:
        return Side(checkpoint)
    (name,) = checkpoint.location.items
    return Side(checkpoint, {LeafPath((name, *path)): path for path in checkpoint.tree})


def items_apart(left: Side, right: Side) -> list[str]:
    """Where no leaf is in both, and paths begin with names of items, those items by their own paths."""
    if any(path in right.tree for path in left.tree):
        return []
    ones, others = left.checkpoint, right.checkpoint
    by_items = are_compared_by_items(ones, others)
    places = [one.location for one in (ones, others) if one.location.prefix_items or by_items]
    return [str(item) for place in places if place.folder_of_items for item in place.items.values()]


def lacking_items(one: Checkpoint, other: Checkpoint) -> list[str]:
    """What the step of ``one`` has, and that of ``other`` has not: trees too, where these are compared by their names.

    None where one is no step.
    """
    here = set(one.location.items) if are_compared_by_items(one, other) else set()
    return sorted(_lacking(one, other, here | one.location.other_items.keys()))


def lacking_beside(one: Checkpoint, other: Checkpoint) -> list[str]:
    """The same of what stands beside the trees that were opened."""
    return sorted(_lacking(one, other, set(one.location.other_items)))


def _lacking(one: Checkpoint, other: Checkpoint, names: set[str]) -> set[str]:
    here, there = one.location, other.location
    if {here.shape, there.shape} - {"root", "step"}:
        return set()
    return names - there.other_items.keys() - there.items.keys()
