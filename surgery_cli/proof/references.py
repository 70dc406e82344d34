"""The leaves that no edit computes: the result refers to the very bytes that were meant, or holds a copy of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
import numpy as np

from surgery_cli.engine.budget import in_order
from surgery_cli.store import filesystem
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.open.item import Item, PytreeItem
from surgery_cli.store.orbax.arrays import ArrayStore, StoredArray, below
from surgery_cli.store.orbax.btree import Extent
from surgery_cli.store.orbax.stored_values import PIECE_BYTES, are_same
from surgery_cli.store.write.item_plan import ItemPlan, PlannedLeaf, Way
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind

_Side = tuple[ArrayStore, StoredArray]


class _Pair(msgspec.Struct, frozen=True):
    """A leaf as it was planned, and the item and path at which it came out."""

    leaf: PlannedLeaf
    item: Item
    path: LeafPath


def other_than_planned(
    written: Checkpoint, plans: Mapping[str, ItemPlan], memory_bytes: int
) -> list[LeafPath]:
    """The leaves that neither refer to the bytes that the plan took, nor hold the same ones; none if all is well.

    References are held against each other by data file, offset and length, and read nothing. What had to be copied
    is read on both sides, as stored. Values that stand in one file with others are compared as values.

    Raises:
        CheckpointError: one side cannot be read.
    """
    files = _Files()
    unlike = [pair for pair in _pairs(written, plans.values()) if not files.refer_alike(pair)]
    tasks = ((pair, _held_bytes(pair)) for pair in unlike)
    agreed = in_order(_is_copy, tasks, memory_bytes)
    return [pair.leaf.draft_path for pair, same in zip(unlike, agreed, strict=True) if not same]


def _pairs(written: Checkpoint, plans: Iterable[ItemPlan]) -> Iterator[_Pair]:
    for plan in plans:
        for leaf in plan.leaves:
            is_taken = leaf.way is not Way.ENCODE and leaf.output.is_by_reference
            if is_taken and leaf.spec.kind is not LeafKind.EMPTY and leaf.origin is not None:
                item, path = written.item_of(leaf.draft_path)
                yield _Pair(leaf, item, path)


def _stored(pair: _Pair) -> tuple[_Side, _Side] | None:
    """Both sides as stored arrays, the planned one first; None if one of them is none."""
    if pair.leaf.array is None or not isinstance(pair.item, PytreeItem):
        return None
    array = pair.item.leaves[pair.path].array
    if array is None or pair.item.store is None:
        return None
    return (pair.leaf.origin_store, pair.leaf.array), (pair.item.store, array)


class _Files:
    """Compares references; every pair of files is looked at once."""

    def __init__(self) -> None:
        self._agree: dict[tuple[Path, str, Path, str], bool] = {}

    def refer_alike(self, pair: _Pair) -> bool:
        """True if both sides name the same ranges of files that are links or copies of each other."""
        sides = _stored(pair)
        if sides is None:
            return False
        (old_store, old), (new_store, new) = sides
        if old.keys != new.keys or len(old.values) != len(new.values):
            return False
        if not old.values:  # every key is a file
            pairs = {(below(old.name) + key, below(new.name) + key) for key in old.keys}
        elif old.values == new.values:
            pairs = {(extent.file, extent.file) for extent in old.extents}
        elif all(map(_is_same_range, old.values, new.values)):
            pairs = {(a.file, b.file) for a, b in zip(old.extents, new.extents, strict=True)}
        else:
            return False
        return all(
            self._are_alike(old_store.directory, a, new_store.directory, b) for a, b in pairs
        )

    def _are_alike(self, old_folder: Path, old: str, new_folder: Path, new: str) -> bool:
        key = (old_folder, old, new_folder, new)
        if key not in self._agree:
            left, right = filesystem.status(old_folder / old), filesystem.status(new_folder / new)
            is_linked = right.st_nlink > 1  # to this file, or to another one
            is_same = (left.st_dev, left.st_ino) == (right.st_dev, right.st_ino)
            self._agree[key] = is_same or (not is_linked and left.st_size == right.st_size)
        return self._agree[key]


def _is_same_range(old: bytes | Extent, new: bytes | Extent) -> bool:
    """True for the same range of a file of the same name; whether the files are alike is not looked at."""
    if not isinstance(old, Extent) or not isinstance(new, Extent):
        return old == new
    # a donor's database lies in a folder of its own; data files have random names, which are never given twice
    is_same_file = new.file == old.file or new.file.endswith(f"/{old.file}")
    return is_same_file and (old.offset, old.length) == (new.offset, new.length)


def _is_copy(pair: _Pair) -> bool:
    """True if both sides hold the same bytes, as stored; or the same value, where they are stored with others."""
    sides = _stored(pair)
    if sides is None:
        return _is_same_value(pair)
    (old_store, old), (new_store, new) = sides
    left, right = old_store.stored_values(old.name), new_store.stored_values(new.name)
    return left.keys() == right.keys() and all(are_same(left[key], right[key]) for key in left)


def _is_same_value(pair: _Pair) -> bool:
    assert pair.leaf.origin is not None
    assert pair.leaf.origin_path is not None
    old = pair.leaf.origin.read(pair.leaf.origin_path)
    new = pair.item.read(pair.path)
    if isinstance(old, str) or isinstance(new, str):
        return bool(old == new)
    left, right = np.asarray(old), np.asarray(new)
    return left.dtype == right.dtype and left.tobytes() == right.tobytes()


def _held_bytes(pair: _Pair) -> int:
    """Bytes in memory while a leaf is compared."""
    return 2 * (pair.leaf.spec.bytes if _stored(pair) is None else PIECE_BYTES)
