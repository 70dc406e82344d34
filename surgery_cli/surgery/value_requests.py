"""Which requests values take: stored ones that are read, new ones that are written and read back."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from surgery_cli.compute.host import HostKit
from surgery_cli.draft.expression import Recipe
from surgery_cli.draft.kernel import Window
from surgery_cli.draft.reads import reads
from surgery_cli.engine.bands import times_chunks_read
from surgery_cli.engine.forecast import blocks_of, pending_bytes
from surgery_cli.engine.grid import block_shape
from surgery_cli.engine.read_forecast import times_read
from surgery_cli.engine.sights import judged_reads
from surgery_cli.engine.stream import batch_bytes
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.object_files import ASKED_AT_ONCE
from surgery_cli.store.filesystem.read_ahead import KEPT_BYTES, merged
from surgery_cli.store.open.file_item import FileItem
from surgery_cli.store.open.item import Item, PytreeItem
from surgery_cli.store.orbax.arrays import ArrayStore, StoredArray
from surgery_cli.store.orbax.ocdbt import SMALL_BYTES, OcdbtStore
from surgery_cli.store.write.item import copied_leaves
from surgery_cli.store.write.item_plan import ItemPlan, PlannedLeaf, Way, is_converted
from surgery_cli.store.write.raw_copies import batches
from surgery_cli.store.write.sidecars import write_shape
from surgery_cli.store.write.strategy import is_per_leaf
from surgery_cli.surgery.expected_reads import array_of, reads_expected
from surgery_cli.surgery.preparation import Prepared
from surgery_cli.surgery.request_tally import PIECE_BYTES, Tally, parts

_TO_OPEN: Final = 1
"""Requests with which TensorStore opens a database: the tree's node. The manifest it is given."""

_DOCUMENT_BYTES: Final = 200
"""What a small document takes that says how an array is stored."""

_STEPS: Final = 7
"""What follows on what was read is read ahead, twice as much each time, until pieces have their full size."""


def add_values_read(tally: Tally, prepared: Prepared, memory_bytes: int) -> None:
    """What is read of stored values: small arrays with their neighbours, chunks of large ones one by one."""
    for store, names, encoded in reads_expected(prepared):
        if isinstance(store, OcdbtStore):
            for ranges in store.ranges_read(names, encoded).values():
                for start, stop in merged(ranges):
                    tally.read(store.directory, 1, stop - start)
    opened: set[int] = set()
    for one in _chunks_read(prepared, memory_bytes):
        store, array, times = one.store, one.array, one.times
        if isinstance(store, OcdbtStore):
            if array.stored_bytes <= SMALL_BYTES:
                continue
            if id(store) not in opened:
                tally.read(store.directory, _TO_OPEN)
            opened.add(id(store))
        count = _stored_bytes(store, array, one.keys)
        tally.read(store.directory, round(len(one.keys) * times), round(count * times))
    for item in prepared.checkpoint.items.values():
        if isinstance(item, FileItem):
            _add_file_read(tally, item)


def _add_file_read(tally: Tally, item: FileItem) -> None:
    """Of a format that is files: all of it is read; where it is written again, what stays is read to be compared."""
    for place in item.files:
        size = filesystem.size(place)
        if is_converted(item):
            tally.read(place, parts(size) + min(parts(16 * size), _STEPS), size)
        else:
            tally.read(place, 2 * parts(size), 2 * size)


class _Read(NamedTuple):
    """An array of which values are read: the keys of the chunks, and how often."""

    store: ArrayStore
    array: StoredArray
    keys: set[str]
    times: float


def _chunks_read(prepared: Prepared, memory_bytes: int) -> Iterator[_Read]:
    """Arrays of which values are read; what is measured is read again."""
    found: dict[tuple[int, str], _Read] = {}
    for recipe, blocks, times_each in _read_in_blocks(prepared, memory_bytes):
        times = times_read(recipe, blocks, memory_bytes) * times_each
        every = itertools.chain.from_iterable(reads(recipe, block) for block in blocks)
        for stored, window in every:
            if (there := array_of(prepared, stored)) is None:
                continue
            store, array = there
            key = id(store), array.name
            one = found.setdefault(key, _Read(store, array, set(), times))
            one.keys.update(_keys_of(array, window))
    yield from found.values()


def _read_in_blocks(
    prepared: Prepared, memory_bytes: int
) -> Iterator[tuple[Recipe, Sequence[Window], float]]:
    """What is made block by block, and how often the stored chunks are read for that."""
    tile = HostKit.tile_elements
    computed = [leaf for plan in prepared.plans.values() for leaf in plan.computed]
    for leaf in computed:
        yield leaf.recipe, blocks_of(leaf), times_chunks_read(leaf, memory_bytes, tile)
    for one in judged_reads(prepared.draft.checks, computed, memory_bytes):
        yield one.recipe, one.blocks, float(one.times)


def _keys_of(array: StoredArray, window: Window) -> Iterator[str]:
    """The keys of the chunks that a block of an array meets."""
    document = array.document
    steps = zip(window, document.write_shape, strict=True)
    places = [range(part.start // max(n, 1), -(-part.stop // max(n, 1))) for part, n in steps]
    return map(document.key_of, itertools.product(*places))


def _stored_bytes(store: ArrayStore, array: StoredArray, keys: set[str]) -> int:
    if array.values:
        every = zip(array.keys, array.values, strict=True)
        return sum(len(value) for key, value in every if key in keys)
    folder = store.directory / array.name
    return sum(filesystem.size(folder / key) for key in keys if key in array.keys)


def add_written(
    tally: Tally, plan: ItemPlan, memory_bytes: int, *, compact: bool, buffered: bool
) -> None:
    """What is written of an item, and read back to be held against it; ``buffered``: before it is sent."""
    ratio = compression(plan)
    count = round(ratio * sum(leaf.written_bytes for leaf in plan.computed))
    chunks = sum(map(_chunks_written, plan.computed))
    if is_per_leaf(plan.item):
        leaves = len(plan.computed)
        # arrays put together from others' chunks get a document, and nothing else
        add_arrays_written(tally, [*plan.computed, *plan.of(Way.ARRANGE)], ratio)
        documents = _DOCUMENT_BYTES * len(plan.leaves)
        if buffered:
            tally.read_back(len(plan.leaves), documents)
        else:
            tally.read_back(chunks + 2 * leaves + len(plan.leaves), count + documents)
        return
    each = 1 if buffered else 2  # a data object, and a manifest that comes with it or last
    commits = transactions(plan, memory_bytes)
    tally.write(each * commits, count, objects=commits)
    small = [leaf for leaf in plan.computed if ratio * leaf.written_bytes <= SMALL_BYTES]
    few = round(ratio * sum(leaf.written_bytes for leaf in small))
    large = chunks - sum(map(_chunks_written, small))
    if not buffered:
        tally.read_back(parts(few) + large + (_TO_OPEN if large else 0), count)
    is_followed = commits > 0
    copied = copied_leaves(plan, compact=compact)
    _add_copied(tally, copied, buffered=buffered, is_followed=is_followed)


def add_arrays_written(tally: Tally, leaves: Sequence[PlannedLeaf], ratio: float) -> None:
    """Arrays with folders of their own: of each its chunks, as far as they are computed, and a document."""
    count = round(ratio * sum(leaf.written_bytes for leaf in leaves))
    chunks = sum(map(_chunks_written, leaves))
    tally.write(chunks + len(leaves), count + _DOCUMENT_BYTES * len(leaves))


def _add_copied(
    tally: Tally, leaves: Sequence[PlannedLeaf], *, buffered: bool, is_followed: bool
) -> None:
    """Stored values that pass through as they are, and are held against where they came from, value by value.

    In memory, before they are sent; where they are not put together there, once they are.

    Where the tree holds all of them itself, the nodes that come with what follows are in the place of theirs.
    """
    taken = [one for leaf in leaves for one in leaf.taken]
    total = 0
    for place in {one.store.directory for one in taken}:
        arrays = [one.array for one in taken if one.store.directory == place]
        sizes = [extent.length for array in arrays for extent in array.extents]
        large = [size for size in sizes if size >= PIECE_BYTES]
        count, small = sum(sizes), sum(sizes) - sum(large)
        pieces = sum(map(parts, large))
        tally.read(place, sum(-(-size // ASKED_AT_ONCE) for size in large), sum(large))
        total += count
        if buffered:
            continue
        is_kept = small <= KEPT_BYTES  # since it was copied
        tally.read(place, pieces + (0 if is_kept else parts(small)), count - is_kept * small)
        tally.read_back(pieces + parts(small), count)
    count = sum(1 for _ in batches(leaves))
    if buffered:
        tally.read_back(count)  # of a node of the one before
    stay = not is_followed or any(one.array.extents for one in taken)
    tally.write(count if buffered else 2 * count, total, objects=count if stay else 0)


def compression(plan: ItemPlan) -> float:
    """Stored bytes over bytes of values: how far the item's values are compressed so far."""
    return compression_of([plan.item])


def compression_of(items: Iterable[Item]) -> float:
    """The same of several; of formats that are files nothing is known to be."""
    found = [item for item in items if isinstance(item, PytreeItem)]
    stored = (leaf.array for item in found for leaf in item.leaves.values())
    count = sum(array.stored_bytes for array in stored if array is not None)
    specs = (spec for item in found for spec in item.tree.values())
    values = sum(spec.bytes for spec in specs if spec.has_array)
    return min(count / values, 1.0) if values else 1.0


def _chunks_written(leaf: PlannedLeaf) -> int:
    if leaf.way is not Way.ENCODE:
        return 0
    if leaf.referred is not None:
        return len(leaf.referred.written)
    grid = zip(leaf.spec.shape, write_shape(leaf) or (), strict=True)
    return math.prod(-(-size // max(step, 1)) for size, step in grid)


def transactions(plan: ItemPlan, memory_bytes: int) -> int:
    """How many it takes to write the leaves that are computed, as ``Stream`` fills them."""
    limit, held, count = batch_bytes(memory_bytes), 0, 0
    for leaf in plan.computed:
        block = block_shape(leaf.spec, write_shape(leaf), *(() if leaf.is_read_whole else (1,)))
        for _ in blocks_of(leaf):
            held += pending_bytes(leaf, block)
            if held >= limit:
                count, held = count + 1, 0
    return count + bool(held)
