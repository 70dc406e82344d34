"""Stored leaves read within a bound of memory, whatever the blocks are in which their values are wanted."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np

from surgery_cli.compute.numpy_dtypes import numpy_dtype
from surgery_cli.draft.kernel import Window
from surgery_cli.engine.forecast import chunks_around, reading_bytes
from surgery_cli.engine.freed_memory import HEAP
from surgery_cli.engine.grid import (
    BLOCK_BYTES,
    block_bytes,
    block_shape,
    relative,
    window_shape,
    windows,
)
from surgery_cli.engine.reading import Readable, Values, read_values
from surgery_cli.store.orbax.chunk_keeper import keeping_no_chunks
from surgery_cli.tree.dtypes import item_bytes
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec

Shape = tuple[int, ...]

LEAST_BYTES: Final = 3 * BLOCK_BYTES
"""What reading a leaf may take however little memory is allowed: a block as stored, as read, and a copy of parts."""


class Reading(NamedTuple):
    """How the values of a leaf are read: in ``part``s, which fill one ``region`` after the other, both in C order.

    ``held_bytes`` are in memory meanwhile, and a stored chunk is decoded ``times`` times at most. ``is_by_chunk``: a
    part is put together of what it has of one chunk after the other, so that never more than one is decoded at a time.
    """

    region: Shape
    part: Shape
    held_bytes: int
    times: int = 1
    is_by_chunk: bool = False

    def windows(self, shape: Shape) -> Iterator[tuple[Window, Iterator[Window]]]:
        """The regions of a leaf of that shape, each with its parts."""
        for region in windows(shape, self.region):
            inside = windows(window_shape(region), self.part)
            yield region, (_placed(part, region) for part in inside)

    def read(self, source: Readable, path: LeafPath, spec: LeafSpec, window: Window) -> Values:
        """A part of the leaf."""
        HEAP.make_room(block_bytes(spec, window))
        HEAP.make_room_for_one(max(block_bytes(spec, window), chunk_bytes(spec, spec.chunk_shape)))
        if not self.is_by_chunk or spec.chunk_shape is None:
            return read_values(source, path, window)
        values = np.empty(window_shape(window), numpy_dtype(spec.dtype))
        with keeping_no_chunks():
            for piece in met_by(window, spec.chunk_shape):
                values[relative(piece, window)] = read_values(source, path, piece)
        return values


class PairReading(NamedTuple):
    """How two leaves of one shape are read beside each other: in the same parts, each in its way."""

    a: Reading
    b: Reading

    @property
    def held_bytes(self) -> int:
        """Bytes in memory meanwhile."""
        return self.a.held_bytes + self.b.held_bytes

    @property
    def times(self) -> int:
        """The most that a stored chunk of either is decoded."""
        return max(self.a.times, self.b.times)


def block_reading(
    spec: LeafSpec, limit_bytes: int, grid: Shape | None = None, *, is_joint: bool = False
) -> Reading:
    """How blocks of a ``grid``, by default the leaf's own, are read such that each gets its values in C order.

    One block after the other, in parts where it is too large; with ``is_joint`` also several beside each other. What
    decodes chunks least often is taken. A single chunk is read however large it is.
    """
    if not spec.has_array:
        return Reading((), (), 0)
    blocks = block_shape(spec, spec.write_shape)
    if grid is not None:
        blocks = tuple(max(min(part, size), 1) for part, size in zip(grid, spec.shape, strict=True))
    at_once = Reading(blocks, blocks, reading_bytes(spec, blocks))
    if at_once.held_bytes <= max(limit_bytes, LEAST_BYTES) or not spec.shape:
        return at_once
    limit = max(limit_bytes, 2 * chunk_bytes(spec, spec.chunk_shape) + LEAST_BYTES)
    rank = len(blocks)
    first = 0 if is_joint else rank
    regions = dict.fromkeys(
        blocks[:axis] + spec.shape[axis:] for axis in range(rank, first - 1, -1)
    )
    found = [
        _largest_run(spec, region, axis, limit, is_copied=region != blocks)
        for region in regions
        for axis in range(rank)
    ]
    return min(filter(None, found), key=lambda one: one.times)


def pair_reading(a: LeafSpec, b: LeafSpec, limit_bytes: int) -> PairReading:
    """How two leaves of one shape are read in blocks of any kind, so that chunks of both are decoded least often."""
    if not a.has_array:
        return PairReading(Reading((), (), 0), Reading((), (), 0))
    limit = max(
        limit_bytes,
        2 * (chunk_bytes(a, a.chunk_shape) + chunk_bytes(b, b.chunk_shape)) + 2 * LEAST_BYTES,
    )
    unit = shared_unit(a.shape, (a, b))
    for stored in (a.write_shape, b.write_shape, unit):
        found = _beside(a, b, block_shape(a, stored), limit)
        if found.times == 1 and found.held_bytes <= limit:
            return found
    found = _beside(a, b, a.shape, limit)
    while found.held_bytes > limit and math.prod(found.a.part) > 1:
        part = found.a.part
        smaller = [
            _beside(a, b, halved(part, axis, unit), limit) for axis, n in enumerate(part) if n > 1
        ]
        found = min(smaller, key=lambda one: (one.times, one.held_bytes))
    return found


def _beside(a: LeafSpec, b: LeafSpec, part: Shape, limit_bytes: int) -> PairReading:
    every = itertools.starmap(
        PairReading, itertools.product(_ways(a, part, part), _ways(b, part, part))
    )
    return min(
        every, key=lambda one: (max(one.held_bytes - limit_bytes, 0), one.times, one.held_bytes)
    )


def _largest_run(
    spec: LeafSpec, region: Shape, axis: int, limit_bytes: int, *, is_copied: bool
) -> Reading | None:
    """The largest parts that split a region along one axis, with single places along those before it."""

    def reading(length: int) -> Reading:
        ways = _ways(
            spec, region, (1,) * axis + (length,) + region[axis + 1 :], is_copied=is_copied
        )
        return min(ways, key=lambda one: (max(one.held_bytes - limit_bytes, 0), one.times))

    def fits(length: int) -> bool:
        return reading(length).held_bytes <= limit_bytes

    chunk = min(spec.chunk_shape[axis], region[axis]) if spec.chunk_shape is not None else 1
    whole = _largest(lambda count: fits(count * chunk), region[axis] // chunk) * chunk
    length = whole or _largest(fits, chunk)
    return reading(length) if length else None


def _ways(spec: LeafSpec, region: Shape, part: Shape, *, is_copied: bool = False) -> list[Reading]:
    """In which ways parts of regions can be read, what it takes, and how often chunks are decoded."""
    count = math.prod(part) * item_bytes(spec.dtype)
    copied = count if is_copied else 0
    at_once = Reading(region, part, reading_bytes(spec, part) + copied)
    if spec.chunk_shape is None:
        return [at_once]
    axes = list(zip(part, region, spec.chunk_shape, spec.shape, strict=True))
    met = [_met(*axis) for axis in axes]
    if max(met, default=1) == 1:
        return [at_once]
    # chunks around a part are kept, and serve those that follow unless others come between
    is_all = [chunks_around(inner, chunk, size) == size for inner, _, chunk, size in axes]
    kept = math.prod(times for axis, times in enumerate(met) if not all(is_all[axis + 1 :]))
    by_chunk = 2 * (chunk_bytes(spec, spec.chunk_shape) + count) + copied
    return [at_once._replace(times=kept), Reading(region, part, by_chunk, math.prod(met), True)]


def _met(part: int, region: int, chunk: int, size: int) -> int:
    """The most parts that a chunk meets along an axis, which are cut off where a region ends."""
    inside = meeting(part, chunk, size) - 1 if part < region else 0
    return meeting(region, chunk, size) + inside


def meeting(step: int, chunk: int, size: int) -> int:
    """The most steps along an axis, one after the other, that a chunk meets.

    >>> meeting(4, 8, 100), meeting(8, 4, 100), meeting(3, 8, 100), meeting(200, 8, 100)
    (2, 1, 4, 1)
    """
    if step >= size or step % max(chunk, 1) == 0:
        return 1
    meeting = chunk // step if chunk % step == 0 else (chunk - 2) // step + 2
    return min(meeting, -(-size // step))


def halved(part: Shape, axis: int, unit: Shape) -> Shape:
    """Half as long along an axis, in whole units where there are several."""
    half = -(-part[axis] // 2)
    if part[axis] > unit[axis]:
        half = -(-half // unit[axis]) * unit[axis]
        half = min(half, (part[axis] - 1) // unit[axis] * unit[axis])
    return (*part[:axis], half, *part[axis + 1 :])


def shared_unit(shape: Shape, stored: Iterable[LeafSpec]) -> Shape:
    """The smallest block of whole chunks of all of these leaves, which have one shape."""
    unit = [1] * len(shape)
    for spec in stored:
        chunks = spec.chunk_shape or unit
        unit = [math.lcm(one, max(n, 1)) for one, n in zip(unit, chunks, strict=True)]
    return tuple(min(one, max(size, 1)) for one, size in zip(unit, shape, strict=True))


def chunk_bytes(spec: LeafSpec, chunk: Shape | None) -> int:
    """Bytes of a chunk, decoded; what lies beyond the leaf's end is decoded as well. 0 where there are none."""
    return 0 if chunk is None else math.prod(chunk) * item_bytes(spec.dtype)


def _largest(fits: Callable[[int], bool], most: int) -> int:
    """The largest number up to ``most`` that fits, where all smaller ones do; 0 if not even 1 does."""
    low, high = 0, most
    while low < high:
        middle = -(-(low + high) // 2)
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _placed(part: Window, region: Window) -> Window:
    return tuple(
        slice(one.start + at.start, one.stop + at.start)
        for one, at in zip(part, region, strict=True)
    )


def met_by(window: Window, chunks: Shape) -> Iterator[Window]:
    """What a window has of each of the chunks, or blocks of a grid, that it meets."""
    axes = []
    for one, chunk in zip(window, chunks, strict=True):
        step = max(chunk, 1)
        starts = range(one.start // step * step, one.stop, step)
        axes.append([slice(max(n, one.start), min(n + step, one.stop)) for n in starts] or [one])
    yield from itertools.product(*axes)
