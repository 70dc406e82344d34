"""The leaves that no edit computes: the result refers to the very bytes that were meant, or holds a copy of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
import numpy as np

from surgery_cli.draft.kernel import Window
from surgery_cli.engine.budget import in_order
from surgery_cli.engine.digests import c_order_bytes
from surgery_cli.engine.grid import BLOCK_BYTES, block_shape, windows
from surgery_cli.store import filesystem
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.open.item import Item, PytreeItem
from surgery_cli.store.orbax.arrays import ArrayStore, StoredArray, below
from surgery_cli.store.orbax.extents import Extent
from surgery_cli.store.orbax.stored_values import PIECE_BYTES, are_same
from surgery_cli.store.write.chunk_references import Taken
from surgery_cli.store.write.early_reads import Vouching
from surgery_cli.store.write.item_plan import ItemPlan, PlannedLeaf, Way
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec

_Side = tuple[ArrayStore, StoredArray]


class _Pair(msgspec.Struct, frozen=True):
    """A leaf as it was planned, the item and path at which it came out, and stored values that it takes.

    ``stored``: from where and to where, value by value in the same order; None if they are no stored arrays.
    """

    leaf: PlannedLeaf
    item: Item
    path: LeafPath
    stored: tuple[_Side, _Side] | None


def other_than_planned(
    written: Checkpoint,
    plans: Mapping[str, ItemPlan],
    memory_bytes: int,
    vouching: Mapping[str, Vouching] = {},
) -> list[LeafPath]:
    """The leaves that neither refer to the bytes that the plan took, nor hold the same ones; none if all is well.

    References are held against each other by data file, offset and length, and read nothing. What had to be copied
    is read on both sides, as stored, unless ``vouching`` (by item) knows what it is. Values that stand in one file with
    others are compared as values.

    Raises:
        CheckpointError: one side cannot be read.
    """
    files = _Files()
    unlike = [
        pair
        for name, plan in plans.items()
        for pair in _pairs(written, plan)
        if not (files.refer_alike(pair) or _is_known(pair, vouching.get(name)))
    ]
    _expect(unlike)
    tasks = ((pair, _held_bytes(pair)) for pair in unlike)
    agreed = in_order(_is_copy, tasks, memory_bytes)
    wrong = [pair.leaf.draft_path for pair, same in zip(unlike, agreed, strict=True) if not same]
    return list(dict.fromkeys(wrong))


def _expect(pairs: Iterable[_Pair]) -> None:
    """Tell the stores on both sides which stored values will be read."""
    names: dict[int, tuple[ArrayStore, set[str]]] = {}
    for store, array in (side for pair in pairs for side in pair.stored or ()):
        names.setdefault(id(store), (store, set()))[1].add(array.name)
    for store, wanted in names.values():
        store.expect((), wanted)


def _is_known(pair: _Pair, reads: Vouching | None) -> bool:
    """True if what was copied was held against where it came from when it was."""
    if pair.stored is None or reads is None or not _have_keys_alike(pair):
        return False
    return reads.has_copied(pair.stored[1][1])


def _pairs(written: Checkpoint, plan: ItemPlan) -> Iterator[_Pair]:
    for leaf in plan.leaves:
        is_taken = leaf.way is not Way.ENCODE and leaf.output.is_by_reference
        is_whole = is_taken and leaf.spec.kind is not LeafKind.EMPTY and leaf.origin is not None
        if is_whole or leaf.referred is not None:
            item, path = written.item_of(leaf.draft_path)
            for stored in _stored(leaf, item, path):
                yield _Pair(leaf, item, path, stored)


def _stored(leaf: PlannedLeaf, item: Item, path: LeafPath) -> Iterator[tuple[_Side, _Side] | None]:
    """Both sides of all that is taken as stored, the planned one first; None if one of them is no stored array."""
    array = item.leaves[path].array if isinstance(item, PytreeItem) else None
    if not isinstance(item, PytreeItem) or item.store is None or array is None or not leaf.taken:
        yield None
        return
    at = {} if leaf.referred is None else {key: number for number, key in enumerate(array.keys)}
    for taken in leaf.taken:
        new = array if leaf.referred is None else _chunks(array, at, leaf, taken)
        yield (taken.store, taken.array), (item.store, new)


def _chunks(
    array: StoredArray, at: Mapping[str, int], leaf: PlannedLeaf, taken: Taken
) -> StoredArray:
    """Of an array the chunks that were taken, in their order; nothing if they are not there, or it is another one.

    ``at``: the number of each key of it.
    """
    is_there = array.document.raw == leaf.stored_document[1] and all(map(at.__contains__, taken.to))
    keys = taken.to if is_there else ()
    values = tuple(array.values[at[key]] for key in keys) if array.values else ()
    return msgspec.structs.replace(array, keys=keys, values=values)


class _Files:
    """Compares references; every pair of files is looked at once."""

    def __init__(self) -> None:
        self._agree: dict[tuple[Path, str, Path, str], bool] = {}

    def refer_alike(self, pair: _Pair) -> bool:
        """True if both sides name the same ranges of files that are links or copies of each other."""
        if pair.stored is None or not _have_keys_alike(pair):
            return False
        (old_store, old), (new_store, new) = pair.stored
        if len(old.values) != len(new.values):
            return False
        if not old.values:  # every key is a file
            keys = zip(old.keys, new.keys, strict=True)
            pairs = {(below(old.name) + one, below(new.name) + other) for one, other in keys}
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


def _have_keys_alike(pair: _Pair) -> bool:
    """True if both sides have as many values; where a whole array is taken, under the same keys."""
    assert pair.stored is not None
    (_, old), (_, new) = pair.stored
    if pair.leaf.referred is not None:
        return len(old.keys) == len(new.keys)
    return old.keys == new.keys


def _is_same_range(old: bytes | Extent, new: bytes | Extent) -> bool:
    """True for the same range of a file of the same name; whether the files are alike is not looked at."""
    if not isinstance(old, Extent) or not isinstance(new, Extent):
        return old == new
    # a donor's database lies in a folder of its own; data files have random names, which are never given twice
    is_same_file = new.file == old.file or new.file.endswith(f"/{old.file}")
    return is_same_file and (old.offset, old.length) == (new.offset, new.length)


def _is_copy(pair: _Pair) -> bool:
    """True if both sides hold the same bytes, as stored; or the same value, where they are stored with others."""
    if pair.stored is None:
        return _is_same_value(pair)
    if not _have_keys_alike(pair):
        return False
    (old_store, old), (new_store, new) = pair.stored
    left, right = old_store.stored_values(old.name), new_store.stored_values(new.name)
    keys = zip(old.keys, new.keys, strict=True)
    return all(are_same(left[one], right[other]) for one, other in keys)


def _is_same_value(pair: _Pair) -> bool:
    origin, path = pair.leaf.origin, pair.leaf.origin_path
    assert origin is not None
    assert path is not None
    for block in _blocks(pair.leaf.spec):
        old, new = origin.read(path, block), pair.item.read(pair.path, block)
        if isinstance(old, str) or isinstance(new, str):
            return bool(old == new)
        left, right = np.asarray(old), np.asarray(new)
        if left.dtype != right.dtype or not np.array_equal(*map(c_order_bytes, (left, right))):
            return False
    return True


def _blocks(spec: LeafSpec) -> Iterator[Window | None]:
    """In which parts values are compared: of large arrays block by block."""
    if spec.bytes <= BLOCK_BYTES:
        yield None
    else:
        yield from windows(spec.shape, block_shape(spec, None))


def _held_bytes(pair: _Pair) -> int:
    """Bytes in memory while a leaf is compared."""
    return 2 * (min(pair.leaf.spec.bytes, BLOCK_BYTES) if pair.stored is None else PIECE_BYTES)
