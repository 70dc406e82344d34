"""Which requests it takes to read stored values: small arrays with their neighbours, each chunk of large ones."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any, Final

from surgery_cli.compute.host import HostKit
from surgery_cli.draft.expression import Recipe
from surgery_cli.draft.kernel import Window
from surgery_cli.draft.recipe import SOURCE
from surgery_cli.engine.bands import times_chunks_read
from surgery_cli.engine.forecast import blocks_of
from surgery_cli.engine.read_forecast import WindowRead, windows_read
from surgery_cli.engine.sights import judged_reads
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.object_files import ASKED_AT_ONCE
from surgery_cli.store.filesystem.read_ahead import merged
from surgery_cli.store.open.file_item import FileItem
from surgery_cli.store.orbax.arrays import ArrayStore, StoredArray
from surgery_cli.store.orbax.ocdbt import SMALL_BYTES, OcdbtStore
from surgery_cli.store.write.item_plan import ItemPlan, is_converted
from surgery_cli.surgery.expected_reads import array_of, reads_expected
from surgery_cli.surgery.preparation import Prepared
from surgery_cli.surgery.request_tally import PIECE_BYTES, Tally, parts

TO_OPEN: Final = 1
"""Requests with which TensorStore opens a database: the tree's node. The manifest it is given."""

_STEPS: Final = 7
"""What follows on what was read is read ahead, twice as much each time, until pieces have their full size."""

TOGETHER_BYTES: Final = 64 << 10
"""What is smaller in a file comes with what stands beside it."""


def add_values_read(tally: Tally, prepared: Prepared, memory_bytes: int) -> None:
    """What is read of stored values, of the source and of donors."""
    for store, names, encoded in reads_expected(prepared):
        if isinstance(store, OcdbtStore):
            for ranges in store.ranges_read(names, encoded).values():
                for start, stop in merged(ranges):
                    tally.read(store.directory, 1, stop - start)
    arrays: dict[tuple[int, str], _Read] = {}
    files: dict[str, list[int]] = {}
    for read, times_each in _windows_read(prepared, memory_bytes):
        name = read.stored.ref.source
        if (there := array_of(prepared, read.stored)) is not None:
            one = arrays.setdefault((id(there[0]), there[1].name), _Read(*there))
            one.add(read, times_each)
        else:
            size = read.bytes.usually
            times = times_each if size >= PIECE_BYTES else 1  # what is smaller is kept
            files.setdefault(name, []).append(round(size * times))
    _add_chunks(tally, arrays.values())
    own = files.pop(SOURCE, [])
    for name, sizes in files.items():
        _add_values_in_files(tally, prepared.sources[name], sizes)
    for plan in prepared.plans.values():
        if isinstance(plan.item, FileItem):
            _add_file_read(tally, plan, plan.item, own)


def _add_chunks(tally: Tally, arrays: Iterable[_Read]) -> None:
    """Chunks of arrays, but for small ones of a database, of which all is read together."""
    opened: set[int] = set()
    for one in arrays:
        if isinstance(one.store, OcdbtStore):
            if one.array.stored_bytes <= SMALL_BYTES:
                continue
            if id(one.store) not in opened:
                tally.read(one.store.directory, TO_OPEN)
            opened.add(id(one.store))
        one.tell(tally)


def _add_values_in_files(tally: Tally, donor: Any, sizes: Sequence[int]) -> None:
    """Values of so many bytes each, of a format that is files."""
    tally.read(donor.place_on_disk, requests_in_files(sizes), sum(sizes))


def requests_in_files(sizes: Sequence[int]) -> int:
    """In how many requests values are read that stand in a file; small ones come with their neighbours."""
    large = [size for size in sizes if size >= TOGETHER_BYTES]
    small = sum(sizes) - sum(large)
    return sum(-(-size // ASKED_AT_ONCE) for size in large) + -(-small // TOGETHER_BYTES)


def _add_file_read(tally: Tally, plan: ItemPlan, item: FileItem, own: Sequence[int]) -> None:
    """Of a format that is only read, all of it; where it is written again, values that stay, once more to be compared.

    ``own``: of so many bytes each values are read to make others.
    """
    if is_converted(item):
        for place in item.files:
            size = filesystem.size(place)
            tally.read(place, parts(size) + min(parts(16 * size), _STEPS), size)
        return
    stay = [
        leaf.spec.bytes
        for leaf in plan.leaves
        if leaf.output.is_by_reference and leaf.origin is item
    ]
    requests = parts(sum(stay)) + requests_in_files(stay) + requests_in_files(own)
    tally.read(item.directory, requests, 2 * sum(stay) + sum(own))


class _Read:
    """An array of which values are read: which chunks, and how often; what is measured is read for that, too."""

    def __init__(self, store: ArrayStore, array: StoredArray) -> None:
        self.store = store
        self.array = array
        self._times: dict[bool, dict[str, float]] = {True: {}, False: {}}
        """By key, to be measured, and else."""

    def add(self, read: WindowRead, times_each: float) -> None:
        """A window of it is read; the chunks in it so much more often."""
        times = self._times[read.is_measured]
        for key in self._keys_of(read.window):
            times[key] = max(times.get(key, 0), read.times * times_each)

    def _keys_of(self, window: Window) -> Iterator[str]:
        """The keys of the chunks that a block of the array meets."""
        document = self.array.document
        steps = zip(window, document.write_shape, strict=True)
        places = [range(part.start // max(n, 1), -(-part.stop // max(n, 1))) for part, n in steps]
        return map(document.key_of, itertools.product(*places))

    def tell(self, tally: Tally) -> None:
        """Add what it takes."""
        for times in self._times.values():
            count = sum(size * times[key] for key, size in self._sizes(times))
            tally.read(self.store.directory, round(sum(times.values())), round(count))

    def _sizes(self, keys: Container[str]) -> Iterator[tuple[str, int]]:
        """How large the chunks are that are stored, as they are."""
        if self.array.values:
            every = zip(self.array.keys, self.array.values, strict=True)
            yield from ((key, len(value)) for key, value in every if key in keys)
            return
        folder = self.store.directory / self.array.name
        yield from ((key, filesystem.size(folder / key)) for key in self.array.keys if key in keys)


def _windows_read(prepared: Prepared, memory_bytes: int) -> Iterator[tuple[WindowRead, float]]:
    """What is read of stored leaves, and how often chunks are for that."""
    measured: set[int] = set()
    for recipe, blocks, times_each in _read_in_blocks(prepared, memory_bytes):
        for one in windows_read(recipe, blocks, memory_bytes, measured):
            yield one, 1.0 if one.is_measured else times_each


def _read_in_blocks(
    prepared: Prepared, memory_bytes: int
) -> Iterator[tuple[Recipe, Sequence[Window], float]]:
    """What is made block by block, and how often the stored chunks are read for that."""
    tile = HostKit.tile_elements
    computed = [leaf for plan in prepared.plans.values() for leaf in plan.computed]
    for leaf in computed:
        yield leaf.recipe, blocks_of(leaf), times_chunks_read(leaf, memory_bytes, tile)
    for leaf in (leaf for plan in prepared.plans.values() for leaf in plan.packed):
        # what comes from another checkpoint as it is stored there is held against that once it is packed
        is_compared = leaf.output.is_by_reference and leaf.origin is not None
        yield leaf.recipe, blocks_of(leaf), 2.0 if is_compared else 1.0
    for one in judged_reads(prepared.draft.checks, computed, memory_bytes):
        yield one.recipe, one.blocks, float(one.times)
