"""Several leaves as one, and the other way: on top of each other along a new axis, or side by side along one."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, chain, groupby
from typing import Any, ClassVar

import msgspec

from surgery_cli.draft.arrangement import Arrangement, rearranged
from surgery_cli.draft.axis_order import AxisOrder
from surgery_cli.draft.kernel import Kernel, Piece, Window
from surgery_cli.tree.specs import LeafSpec


class Stack(Arrangement, frozen=True, tag="stack"):
    """Leaves of one shape along a new ``axis``, each in a chunk of its own."""

    axis: int
    count: int
    regroups: ClassVar[bool] = True

    def output(self, leaf: LeafSpec) -> LeafSpec:
        shape, origins = [*leaf.shape], [*range(len(leaf.shape))]
        spec = rearranged(
            leaf, _with(shape, self.axis, self.count), _with(origins, self.axis, None)
        )
        if leaf.chunk_shape is None and leaf.has_array:  # of a file in which arrays lie whole
            chunk = tuple(max(n, 1) for n in _with(shape, self.axis, 1))
            return msgspec.structs.replace(spec, chunk_shape=chunk, write_shape=chunk)
        return _chunked(spec, self.axis, 1, 1)

    def reorder(self, order: AxisOrder) -> AxisOrder:
        return order.with_new(self.axis, self.count)

    def pieces(self, out: Window, inputs: Sequence[LeafSpec], output: LeafSpec) -> Iterator[Piece]:
        rest, mine = _lacking(out, self.axis), out[self.axis]
        for number in range(mine.start, mine.stop):
            yield Piece(number, rest, _with(rest, self.axis, slice(number, number + 1)))
        if mine.start == mine.stop:
            yield Piece(0, tuple(slice(0, 0) for _ in rest), out)

    def arrange(self, block: Any, piece: Piece) -> Any:
        shape = [part.stop - part.start for part in piece.write]
        return block.reshape(shape)

    def taking(self, part: Kernel) -> int | None:
        if not isinstance(part, Unstack) or part.axis != self.axis or part.index >= self.count:
            return None
        return part.index

    def on_each(self) -> Arrangement:
        return Stack(self.axis + 1, self.count)

    def without(self, axis: int, leaf: LeafSpec) -> tuple[Arrangement, int] | None:
        place = axis + (axis >= self.axis)
        return Stack(self.axis - (place < self.axis), self.count), place


class Unstack(Arrangement, frozen=True, tag="unstack"):
    """One place of an ``axis``, which is gone."""

    axis: int
    index: int
    regroups: ClassVar[bool] = True

    def output(self, leaf: LeafSpec) -> LeafSpec:
        return rearranged(
            leaf, _lacking(leaf.shape, self.axis), _lacking(range(len(leaf.shape)), self.axis)
        )

    def reorder(self, order: AxisOrder) -> AxisOrder:
        return order.without(self.axis)

    def pieces(self, out: Window, inputs: Sequence[LeafSpec], output: LeafSpec) -> Iterator[Piece]:
        yield Piece(0, _with(out, self.axis, slice(self.index, self.index + 1)), out)

    def arrange(self, block: Any, piece: Piece) -> Any:
        return block.squeeze(self.axis)

    def on_each(self) -> Arrangement:
        return Unstack(self.axis + 1, self.index)

    def without(self, axis: int, leaf: LeafSpec) -> tuple[Arrangement, int] | None:
        if axis == self.axis:
            return None
        return Unstack(self.axis - (axis < self.axis), self.index), axis - (axis > self.axis)


class Concat(Arrangement, frozen=True, dict=True, tag="concat"):
    """Leaves side by side along an ``axis``, on which each has its size.

    In several ``groups`` they take turns: the first share of each, then the second of each.
    """

    axis: int
    sizes: tuple[int, ...]
    groups: int = 1
    regroups: ClassVar[bool] = True

    @cached_property  # of thousands of leaves, maybe, and asked for each chunk
    def parts(self) -> tuple[Part, ...]:
        """What takes each of the leaves out again."""
        shares = [size // self.groups for size in self.sizes]
        return tuple(
            Part(self.axis, start, share, self._width, self.groups)
            for start, share in zip(self._borders, shares, strict=False)
        )

    @cached_property
    def _width(self) -> int:
        return sum(self.sizes) // self.groups

    @cached_property
    def _borders(self) -> list[int]:
        """Where in a group the shares of the leaves begin, and where the last one ends."""
        return [0, *accumulate(size // self.groups for size in self.sizes)]

    @cached_property
    def _numbers(self) -> dict[Part, int]:
        """The number of each part; of empty ones that are the same, that of the first."""
        return {part: number for number, part in reversed([*enumerate(self.parts)])}

    def output(self, leaf: LeafSpec) -> LeafSpec:
        shape, whole = [*leaf.shape], sum(self.sizes)
        shape[self.axis] = whole
        spec = rearranged(leaf, shape, range(len(shape)))
        if leaf.chunk_shape is None or leaf.write_shape is None:
            return spec
        both = (
            self._chunk(chunks[self.axis], leaf.shape[self.axis])
            for chunks in (leaf.chunk_shape, leaf.write_shape)
        )
        return _chunked(spec, self.axis, *both)

    def _chunk(self, chunk: int, size: int) -> int:
        """The size of a chunk along the axis: that of a leaf, or all of a leaf where those are of one size."""
        if chunk < size:
            return chunk
        least = min(self.sizes)
        is_even = self.groups == 1 and least and not any(n % least for n in self.sizes)
        return max(least if is_even else sum(self.sizes), 1)

    def reorder(self, order: AxisOrder) -> AxisOrder | None:
        return order.resized(self.axis, sum(self.sizes))

    def pieces(self, out: Window, inputs: Sequence[LeafSpec], output: LeafSpec) -> Iterator[Piece]:
        """One for each leaf of which something is there."""
        mine, found = out[self.axis], False
        for number in self._near(mine):
            part = self.parts[number]
            places = part.places_in(mine)
            if places:
                found = True
                write: Any = [part.place(n) for n in places]
                if self.groups == 1:
                    write = slice(write[0], write[-1] + 1)
                read = slice(places.start, places.stop)
                yield Piece(number, _put(out, self.axis, read), _put(out, self.axis, write))
        if not found:
            nothing = slice(mine.start, mine.start)
            yield Piece(0, _put(out, self.axis, slice(0, 0)), _put(out, self.axis, nothing))

    def _near(self, mine: slice) -> Iterable[int]:
        """The numbers of the leaves, in order, of which something may be in a window: none of those far from it."""
        width, count = self._width, len(self.sizes)
        if not mine.start < mine.stop < mine.start + width:
            return range(count)
        first = bisect_right(self._borders, mine.start % width) - 1
        behind = bisect_left(self._borders, (mine.stop - 1) % width + 1)
        if mine.start // width == (mine.stop - 1) // width:
            return range(first, min(behind, count))
        return chain(range(min(first, behind)), range(first, count))

    def taking(self, part: Kernel) -> int | None:
        return self._numbers.get(part) if isinstance(part, Part) else None

    def is_identity(self, inputs: Sequence[LeafSpec], output: LeafSpec) -> bool:
        return len(self.sizes) == 1

    def on_each(self) -> Arrangement:
        return Concat(self.axis + 1, self.sizes, self.groups)

    def without(self, axis: int, leaf: LeafSpec) -> tuple[Arrangement, int] | None:
        if axis == self.axis:
            return None
        return Concat(self.axis - (axis < self.axis), self.sizes, self.groups), axis


class Part(Arrangement, frozen=True, tag="part"):
    """Of an ``axis``, ``share`` places from ``start`` on in each of the ``groups``, which are ``width`` places long."""

    axis: int
    start: int
    share: int
    width: int
    groups: int = 1
    regroups: ClassVar[bool] = True

    @property
    def size(self) -> int:
        """How many places there are."""
        return self.share * self.groups

    def place(self, number: int) -> int:
        """Where the place with this number stands in the whole."""
        group, within = divmod(number, self.share)
        return group * self.width + self.start + within

    def places_in(self, window: slice) -> range:
        """The numbers of the places that stand in a window of the whole."""
        return range(self._before(window.start), self._before(window.stop))

    def _before(self, stop: int) -> int:
        """How many of the places stand before one of the whole."""
        group, within = divmod(stop, max(self.width, 1))
        return group * self.share + min(max(within - self.start, 0), self.share)

    def output(self, leaf: LeafSpec) -> LeafSpec:
        shape = [*leaf.shape]
        shape[self.axis] = self.size
        return rearranged(leaf, shape, range(len(shape)))

    def reorder(self, order: AxisOrder) -> AxisOrder | None:
        return order.resized(self.axis, self.size)

    def pieces(self, out: Window, inputs: Sequence[LeafSpec], output: LeafSpec) -> Iterator[Piece]:
        mine = out[self.axis]
        if mine.start == mine.stop:
            yield Piece(0, _put(out, self.axis, slice(0, 0)), out)
            return
        if self.groups == 1:
            read = slice(self.start + mine.start, self.start + mine.stop)
            yield Piece(0, _put(out, self.axis, read), out)
            return
        chunk = (inputs[0].chunk_shape or inputs[0].shape)[self.axis] or 1
        numbers = range(mine.start, mine.stop)
        for _, some in groupby(numbers, lambda n: self.place(n) // chunk):
            write = [*some]
            places = [self.place(n) for n in write]
            read = slice(places[0], places[-1] + 1)
            index = [place - places[0] for place in places]
            yield Piece(0, _put(out, self.axis, read), _put(out, self.axis, write), index)

    def arrange(self, block: Any, piece: Piece) -> Any:
        return block if piece.index is None else block.take(piece.index, self.axis)

    def is_identity(self, inputs: Sequence[LeafSpec], output: LeafSpec) -> bool:
        return self.size == inputs[0].shape[self.axis]

    def on_each(self) -> Arrangement:
        return msgspec.structs.replace(self, axis=self.axis + 1)

    def without(self, axis: int, leaf: LeafSpec) -> tuple[Arrangement, int] | None:
        if axis == self.axis:
            return None
        return msgspec.structs.replace(self, axis=self.axis - (axis < self.axis)), axis


def _with(items: Any, axis: int, item: Any) -> Any:
    """One more item, at ``axis``."""
    return (*items[:axis], item, *items[axis:])


def _lacking(items: Any, axis: int) -> Any:
    return (*items[:axis], *items[axis + 1 :])


def _put(window: Window, axis: int, part: Any) -> Any:
    """Another part of one axis."""
    return (*window[:axis], part, *window[axis + 1 :])


def _chunked(leaf: LeafSpec, axis: int, chunk: int, write: int) -> LeafSpec:
    """The leaf with chunks of this size along an axis, where it has chunks."""
    if leaf.chunk_shape is None or leaf.write_shape is None:
        return leaf
    write = math.lcm(chunk, write)
    return msgspec.structs.replace(
        leaf,
        chunk_shape=_put_size(leaf.chunk_shape, axis, chunk),
        write_shape=_put_size(leaf.write_shape, axis, write),
    )


def _put_size(sizes: tuple[int, ...], axis: int, size: int) -> tuple[int, ...]:
    return (*sizes[:axis], size, *sizes[axis + 1 :])
