"""How often the stored chunks of a leaf are decoded to make another: blocks may come back to them again and again."""

from __future__ import annotations

import itertools
import math
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from typing import Final

from surgery_cli.draft.expression import Stored, moves_elements, stored_in
from surgery_cli.draft.kernel import Window
from surgery_cli.draft.reads import reads
from surgery_cli.engine.composition import Composition
from surgery_cli.engine.forecast import blocks_of, bytes_in_flight
from surgery_cli.engine.grid import window_shape
from surgery_cli.store.write.item_plan import PlannedLeaf

MOST_DECODED: Final = 4
"""A chunk that is decoded more often costs more than keeping all of its leaf in memory, if there is room."""

_MOST_LOOKED_AT: Final = 1 << 18
"""Chunks that are followed through the blocks of a leaf; what comes after them is like what came before."""

_Chunk = tuple[int, ...]


def decoded_too_often(leaf: PlannedLeaf) -> int:
    """The most that a chunk is decoded to write a leaf block by block; 0 if that is no more than ``MOST_DECODED``."""
    windows = _windows_read(leaf)
    if len(windows) <= MOST_DECODED:  # each of them decodes a chunk once at most
        return 0
    times = max(_times_decoded(windows), default=0)
    return times if times > MOST_DECODED else 0


def times_decoded(leaf: PlannedLeaf, memory_bytes: int) -> float:
    """How often the chunks are decoded that a leaf is made of, in the mean."""
    windows = _windows_read(leaf)
    if len(windows) < 2 or is_read_once(leaf, memory_bytes):
        return 1.0
    times = list(_times_decoded(windows))
    return sum(times) / len(times) if times else 1.0


def _windows_read(leaf: PlannedLeaf) -> list[tuple[Stored, Window]]:
    """What is read of stored leaves, in order, to make one whose elements come from several places; else nothing."""
    recipe = leaf.output.recipe
    if not moves_elements(recipe):  # most of them, by far: block by block as they are stored
        return []
    of = Composition(recipe)
    if not of.moves_elements or of.measured or of.is_whole:
        return []
    return [read for block in blocks_of(leaf) for read in reads(recipe, block)]


def held_bytes(leaf: PlannedLeaf) -> int:
    """Bytes in memory while the stored leaves that a leaf is made of are read whole and kept: as read, and decoded."""
    return sum(2 * stored.spec.bytes for stored in stored_in(leaf.output.recipe))


def needed_bytes(leaf: PlannedLeaf) -> int:
    """Bytes in memory with which a leaf is made of others that are read whole and kept."""
    return held_bytes(leaf) + bytes_in_flight(leaf, None)


def is_read_once(leaf: PlannedLeaf, memory_bytes: int) -> bool:
    """True if the stored leaves that a leaf is made of are read whole and kept: else chunks are decoded too often."""
    return decoded_too_often(leaf) > 0 and needed_bytes(leaf) <= memory_bytes


def _times_decoded(windows: Iterable[tuple[Stored, Window]]) -> Iterator[int]:
    """How often each chunk is decoded while windows of stored leaves are read, one after the other."""
    stores: dict[int, _Decoded] = {}
    looked_at = 0
    for part, read in windows:
        if part.spec.chunk_shape is None or not part.spec.has_array:
            continue
        if id(part) not in stores:
            stores[id(part)] = _Decoded(part, part.spec.chunk_shape)
        looked_at += stores[id(part)].read(read)
        if looked_at > _MOST_LOOKED_AT:
            break
    for store in stores.values():
        yield from store.times.values()


class _Decoded:
    """The chunks of a stored leaf that are kept between reads, as ``ChunkKeeper`` does, and how often each came."""

    def __init__(self, part: Stored, chunks: tuple[int, ...]) -> None:
        self._spec = part.spec
        self._steps = [max(n, 1) for n in chunks]
        self._room = 0
        self._kept: OrderedDict[_Chunk, None] = OrderedDict()
        self.times: Counter[_Chunk] = Counter()

    def read(self, window: Window) -> int:
        """A window is read; how many chunks it meets."""
        every = zip(window, self._steps, strict=True)
        places = [range(part.start // step, -(-part.stop // step)) for part, step in every]
        sizes = zip(places, self._steps, self._spec.shape, strict=True)
        around = math.prod(min(p.stop * step, size) - p.start * step for p, step, size in sizes)
        if around > math.prod(window_shape(window)) and not self._room:
            self._room = max(around // math.prod(self._steps), 1)
        for chunk in itertools.product(*places):
            if chunk in self._kept:
                self._kept.move_to_end(chunk)
                continue
            self.times[chunk] += 1
            if self._room:
                self._kept[chunk] = None
                if len(self._kept) > self._room:
                    self._kept.popitem(last=False)
        return math.prod(map(len, places))
