"""The largest elements of a leaf, of many leaves, or of every group of neighbours: exactly so many, in bounded memory.

Elements are ordered by absolute value, and equal ones by their place in C order: the first of them come first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

from surgery_cli.draft.kernel import Kernel, Kit, Piece, Place, Search, Window
from surgery_cli.errors import ValueRefusal
from surgery_cli.tree.dtypes import COMPLEX_PARTS, item_bytes
from surgery_cli.tree.specs import LeafSpec

_DIGIT: Final = 16
"""So many bits are settled by one pass, with a counter for each of their values."""


class _Known(NamedTuple):
    """Where the last of the largest is: among those whose bits are at least ``low``, but for ``open`` lower bits.

    ``staying`` of these belong to the largest, beside all before them. The bits are those of sizes; or, of elements
    whose size has the bits ``tied``, those of places. ``cut`` is the result, once that is settled. Sizes have
    ``bits``; ``before`` counts for each input the elements of those before it, and last those of all.
    """

    bits: int
    before: tuple[int, ...]
    staying: int
    open: int
    low: int = 0
    tied: int | None = None
    cut: tuple[int, int] | None = None


class LargestCut(Search, frozen=True, tag="largest_cut"):
    """What parts the ``count`` largest elements of all inputs from the others: [2], int64, a size and a place.

    The bits of absolute values are, as whole numbers, in the order of the values. So each pass counts how many elements
    have which next bits (a radix selection), and places are looked at only where equal elements lie on both sides.
    """

    count: int

    def passes(self, inputs: Sequence[LeafSpec]) -> int:
        is_coarse = all(item_bytes(leaf.dtype) < 4 for leaf in inputs)
        return self.most_passes(inputs) if is_coarse else math.ceil(size_bits(inputs) / _DIGIT)

    def most_passes(self, inputs: Sequence[LeafSpec]) -> int:
        places = sum(leaf.size for leaf in inputs).bit_length()
        return math.ceil(size_bits(inputs) / _DIGIT) + math.ceil(places / _DIGIT)

    def start(self, inputs: Sequence[LeafSpec]) -> _Known:
        before = tuple(accumulate((leaf.size for leaf in inputs), initial=0))
        bits, total = size_bits(inputs), before[-1]
        known = _Known(bits, before, self.count, bits)
        if self.count in (0, total):
            beyond = ((1 << known.open) - 1, 0)
            return known._replace(cut=(0, total) if self.count else beyond)
        return known

    def count_in(self, known: _Known, number: int, block: Any, kit: Kit, at: Place) -> Any:
        digit = min(known.open, _DIGIT)

        def counts(sizes: Any) -> Any:
            bits = sizes if known.tied is None else _places(kit, at, known.before[number])
            bins = (bits - known.low) >> (known.open - digit)
            is_asked = (bits >= known.low) & (bins < (1 << digit))
            if known.tied is not None:
                is_asked &= sizes == known.tied
            return kit.xp.bincount(bins[is_asked], minlength=1 << digit)

        return kit.apply(counts, _sizes(block, kit, known.bits))

    def narrowed(self, known: _Known, counts: Any, inputs: Sequence[LeafSpec]) -> _Known:
        total = known.before[-1]
        digit = min(known.open, _DIGIT)
        is_sizes = known.tied is None  # the largest sizes come first, of places the smallest
        ordered = counts[::-1] if is_sizes else counts
        reached = ordered.cumsum()
        at = int((reached < known.staying).sum())
        if at == len(ordered):
            raise ValueRefusal(
                "the largest elements cannot be told",
                why="fewer of them were found than when they were first counted: values changed while they were read",
                fix="run the command again once nothing writes to what is read",
            )
        here, rest = int(ordered[at]), known.open - digit
        value = (1 << digit) - 1 - at if is_sizes else at
        left = known.staying - (int(reached[at]) - here)
        low = known.low + (value << rest)
        if left == here:
            cut = (low, total) if known.tied is None else (known.tied, low + (1 << rest))
            return known._replace(cut=cut)
        if rest or not is_sizes:
            return known._replace(staying=left, open=rest, low=low)
        return known._replace(staying=left, open=total.bit_length(), low=0, tied=low)

    def found(self, known: _Known) -> tuple[int, int] | None:
        return known.cut


class IsLargest(Kernel, frozen=True, tag="is_largest"):
    """True for the elements of the first input that belong to the largest; the second input is a ``LargestCut``.

    ``size_bits`` is that of all leaves among which it was looked for, and ``before`` counts the elements of those that
    come before this one.
    """

    size_bits: int
    before: int = 0

    def pieces(self, out: Window, inputs: Sequence[LeafSpec], output: LeafSpec) -> Iterator[Piece]:
        yield Piece(0, out, out)
        yield Piece(1, (slice(0, 2),), out)

    def compute(self, blocks: Sequence[Any], kit: Kit, at: Place) -> Any:
        block, cut = blocks
        _refuse_nan(block, kit, at)
        size, place = (int(each) for each in kit.fetch(cut))
        sizes = _sizes(block, kit, self.size_bits)
        if not bool(kit.apply(lambda x: (x == size).any(), sizes)):
            return kit.apply(lambda x: x > size, sizes)
        return kit.apply(
            lambda x: (x > size) | ((x == size) & (_places(kit, at, self.before) < place)), sizes
        )


class IsLargestOfGroup(Kernel, frozen=True, tag="is_largest_of_group"):
    """True for the ``count`` largest of every ``size`` neighbours along an axis, whose length is a multiple of that."""

    count: int
    size: int
    axis: int

    def pieces(self, out: Window, inputs: Sequence[LeafSpec], output: LeafSpec) -> Iterator[Piece]:
        """Whole groups."""
        read = list(out)
        start, stop = out[self.axis].start, out[self.axis].stop
        first, last = start // self.size, -(-stop // self.size)
        read[self.axis] = slice(first * self.size, last * self.size)
        yield Piece(0, tuple(read), out)

    def compute(self, blocks: Sequence[Any], kit: Kit, at: Place) -> Any:
        (block,), xp, start = blocks, kit.xp, at.start[self.axis]
        _refuse_nan(block, kit, at)
        sizes = _sizes(block, kit, size_bits(at.inputs))

        def chosen(x: Any) -> Any:
            groups = xp.moveaxis(x, self.axis, -1)
            shape = groups.shape
            groups = groups.reshape(*shape[:-1], -1, self.size)
            number = xp.arange(self.size)
            rank = xp.zeros(groups.shape, "int32")
            for other in range(self.size):
                one = groups[..., other : other + 1]
                rank = rank + ((one > groups) | ((one == groups) & (other < number)))
            is_chosen = xp.moveaxis((rank < self.count).reshape(shape), -1, self.axis)
            part = slice(start % self.size, start % self.size + at.shape[self.axis])
            return is_chosen[(slice(None),) * self.axis + (part,)]

        return kit.apply(chosen, sizes)


def size_bits(inputs: Sequence[LeafSpec]) -> int:
    """How many bits the absolute values of all of these have: those of float32, or of float64 where one is wider."""
    wide = ("float64", *COMPLEX_PARTS)
    return 63 if any(leaf.dtype in wide for leaf in inputs) else 31


def _sizes(block: Any, kit: Kit, bits: int) -> Any:
    """Absolute values, as integers of the same order: [the block's shape]."""
    if bits == 31:
        return kit.apply(lambda x: kit.xp.abs(x).view("int32"), kit.widened(block))
    return kit.in_float64(block, lambda x: kit.xp.abs(x).view("int64"))


def _places(kit: Kit, at: Place, before: int) -> Any:
    """Where the elements of a block stand in C order, behind ``before`` others: [the block's shape]."""
    places, stride = kit.xp.full((), before, dtype="int64"), 1
    for axis in reversed(range(len(at.shape))):
        along = kit.xp.arange(at.start[axis], at.start[axis] + at.shape[axis], dtype="int64")
        places = places + (along * stride).reshape(-1, *(1,) * (len(at.shape) - 1 - axis))
        stride *= at.output.shape[axis]
    return places


def _refuse_nan(block: Any, kit: Kit, at: Place) -> None:
    """Raise if there are values that are neither larger nor smaller than others.

    Raises:
        ValueRefusal: there is NaN.
    """
    count = int(kit.apply(lambda x: (x != x).sum(), block))  # noqa: PLR0124 - NaN alone differs from itself
    if count:
        where = "" if at.is_all else f" in the block at {list(at.start)} alone"
        raise ValueRefusal(
            f"'{at.path}' has no order by size",
            why=f"{count} of its values{where} are NaN",
            fix="look for them with `surgery inspect --stats`, and mend or leave out the leaf first",
            path=str(at.path),
        )
