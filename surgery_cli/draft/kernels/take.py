"""Places along an axis in any order, some of them perhaps again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import Any

from surgery_cli.draft.arrangement import Arrangement, rearranged
from surgery_cli.draft.axis_order import AxisOrder
from surgery_cli.draft.kernel import Kernel, Piece, Window
from surgery_cli.draft.kernels.cut import Cut, Steps
from surgery_cli.tree.specs import LeafSpec


class Take(Arrangement, frozen=True, tag="take"):
    """Places along an axis by their numbers."""

    axis: int
    index: tuple[int, ...]

    def output(self, leaf: LeafSpec) -> LeafSpec:
        shape = list(leaf.shape)
        shape[self.axis] = len(self.index)
        return rearranged(leaf, shape, range(len(shape)))

    def pieces(self, out: Window, inputs: Sequence[LeafSpec], output: LeafSpec) -> Iterator[Piece]:
        """One for each chunk of the input in which some of the places are, so that no more than it is read at once."""
        leaf, mine = inputs[0], out[self.axis]
        chunk = (leaf.chunk_shape or leaf.shape)[self.axis] or 1
        wanted = sorted((self.index[place], place) for place in range(mine.start, mine.stop))
        groups = [list(some) for _, some in groupby(wanted, lambda pair: pair[0] // chunk)]
        for some in groups:
            first, last = some[0][0], some[-1][0]
            read = (*out[: self.axis], slice(first, last + 1), *out[self.axis + 1 :])
            start, stop = some[0][1], some[-1][1] + 1
            follow = [*enumerate(range(start, stop), first)] == some  # each other, as they did
            places: Any = slice(start, stop) if follow else [place for _, place in some]
            index = [] if follow else [number - first for number, _ in some]
            yield Piece(0, read, (*out[: self.axis], places, *out[self.axis + 1 :]), index)
        if not groups:
            yield Piece(0, (*out[: self.axis], slice(0, 0), *out[self.axis + 1 :]), out, [])

    def arrange(self, block: Any, piece: Piece) -> Any:
        return block.take(piece.index, self.axis) if piece.index else block

    def reorder(self, order: AxisOrder) -> AxisOrder | None:
        if any(one > later for one, later in pairwise(self.index)):
            return order.shuffled()
        return order.resized(self.axis, len(self.index))

    def is_identity(self, inputs: Sequence[LeafSpec], output: LeafSpec) -> bool:
        return self.index == tuple(range(inputs[0].shape[self.axis]))

    def after(self, inner: Kernel) -> Kernel | None:
        if not isinstance(inner, Take) or inner.axis != self.axis:
            return None
        return Take(self.axis, tuple(inner.index[n] for n in self.index))

    def followed_by(self, outer: Kernel) -> Kernel | None:
        """A cut, where what is left follows each other in even steps: of repeated places each once."""
        if not isinstance(outer, Cut):
            return None
        left = [self.index[place] for place in outer.axes[self.axis].places]
        steps = {later - one for one, later in pairwise(left)} or {1}
        if len(steps) > 1 or 0 in steps or not left:
            return None
        axes = [*outer.axes]
        axes[self.axis] = Steps(left[0], len(left), steps.pop())
        return Cut(tuple(axes))

    def along(self, axis: int, leaf: LeafSpec) -> tuple[Arrangement, int]:
        return Take(0, self.index) if axis == self.axis else Cut.whole(axis, leaf), axis

    def without(self, axis: int, leaf: LeafSpec) -> tuple[Arrangement, int] | None:
        if axis == self.axis:  # a mean knows no order, and no repeats if there are as many of each
            counts = Counter(self.index)
            is_even = len(counts) == leaf.shape[axis] and len({*counts.values()}) == 1
            other = 0 if axis else 1
            if not is_even or len(leaf.shape) < 2:
                return None
            place = other - (other > axis)
            return Take(place, tuple(range(leaf.shape[other]))), axis
        return Take(self.axis - (axis < self.axis), self.index), axis
