"""Some of the places along each axis, and the other way: further places around them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from surgery_cli.draft.arrangement import Arrangement, rearranged
from surgery_cli.draft.axis_order import AxisOrder
from surgery_cli.draft.kernel import Kernel, Piece, Window, broadcast_window
from surgery_cli.tree.specs import LeafSpec


class Steps(NamedTuple):
    """Places along an axis: the first, how many, and from one to the next."""

    first: int
    size: int
    step: int = 1

    @property
    def places(self) -> range:
        """The places one by one."""
        return range(self.first, self.first + self.step * self.size, self.step)

    @property
    def bounds(self) -> slice:
        """The places from the smallest to the largest."""
        if not self.size:
            return slice(0, 0)
        last = self.first + self.step * (self.size - 1)
        return slice(min(self.first, last), max(self.first, last) + 1)


class Cut(Arrangement, frozen=True, tag="slice"):
    """Of every axis some places."""

    axes: tuple[Steps, ...]

    def output(self, leaf: LeafSpec) -> LeafSpec:
        return rearranged(leaf, [axis.size for axis in self.axes], range(len(self.axes)))

    def pieces(self, out: Window, inputs: Sequence[LeafSpec], output: LeafSpec) -> Iterator[Piece]:
        parts = (
            Steps(axis.first + axis.step * part.start, part.stop - part.start, axis.step)
            for axis, part in zip(self.axes, out, strict=True)
        )
        yield Piece(0, tuple(part.bounds for part in parts), out)

    def arrange(self, block: Any, piece: Piece) -> Any:
        return block[tuple(slice(None, None, axis.step) for axis in self.axes)]

    def reorder(self, order: AxisOrder) -> AxisOrder | None:
        if any(axis.step < 0 and axis.size > 1 for axis in self.axes):
            return order.shuffled()
        found: AxisOrder | None = order
        for n, axis in enumerate(self.axes):
            found = None if found is None else found.resized(n, axis.size)
        return found

    @classmethod
    def whole(cls, axis: int, leaf: LeafSpec) -> Cut:
        """All places of one axis, as they are."""
        return cls((Steps(0, leaf.shape[axis]),))

    def along(self, axis: int, leaf: LeafSpec) -> tuple[Cut, int]:
        return Cut((self.axes[axis],)), axis

    def is_identity(self, inputs: Sequence[LeafSpec], output: LeafSpec) -> bool:
        every = zip(self.axes, inputs[0].shape, strict=True)
        return all(axis == Steps(0, size) for axis, size in every)

    def after(self, inner: Kernel) -> Kernel | None:
        if isinstance(inner, Cut):
            pairs = zip(self.axes, inner.axes, strict=True)
            return Cut(
                tuple(
                    Steps(old.first + old.step * new.first, new.size, old.step * new.step)
                    for new, old in pairs
                )
            )
        if isinstance(inner, Grow):
            old = slice(inner.before, inner.before + inner.size)
            mine = self.axes[inner.axis]
            if mine.size and old.start <= mine.bounds.start and mine.bounds.stop <= old.stop:
                axes = list(self.axes)
                axes[inner.axis] = mine._replace(first=mine.first - inner.before)
                return Cut(tuple(axes))
        return inner.followed_by(self) if isinstance(inner, Arrangement) else None

    def without(self, axis: int, leaf: LeafSpec) -> tuple[Arrangement, int] | None:
        if self.axes[axis] != Steps(0, leaf.shape[axis]):
            return None
        return Cut((*self.axes[:axis], *self.axes[axis + 1 :])), axis


class Grow(Arrangement, frozen=True, tag="grow"):
    """Further places along one axis: ``before`` and ``after`` the ``size`` that there are."""

    axis: int
    before: int
    size: int
    after_: int

    @property
    def grows(self) -> int | None:
        return self.axis

    def output(self, leaf: LeafSpec) -> LeafSpec:
        shape = list(leaf.shape)
        shape[self.axis] += self.before + self.after_
        return rearranged(leaf, shape, range(len(shape)))

    def pieces(self, out: Window, inputs: Sequence[LeafSpec], output: LeafSpec) -> Iterator[Piece]:
        end, mine = self.before + self.size, out[self.axis]
        for number, low, high, shift in (
            (1, 0, self.before, 0),
            (0, self.before, end, -self.before),
            (1, end, end + self.after_, -self.size),
        ):
            start, stop = max(mine.start, low), min(mine.stop, high)
            if start >= stop:
                continue
            places = (slice(start + shift, stop + shift),)
            read = (*out[: self.axis], *places, *out[self.axis + 1 :])
            if number:
                read = broadcast_window(inputs[1].shape, read)
            write = (*out[: self.axis], slice(start, stop), *out[self.axis + 1 :])
            yield Piece(number, read, write)
        if mine.start == mine.stop or any(part.start == part.stop for part in out):
            yield Piece(
                0, tuple(slice(0, 0) for _ in out), tuple(slice(p.start, p.start) for p in out)
            )

    def reorder(self, order: AxisOrder) -> AxisOrder | None:
        return order.resized(self.axis, self.before + self.size + self.after_)

    def is_identity(self, inputs: Sequence[LeafSpec], output: LeafSpec) -> bool:
        return not self.before + self.after_

    def along(self, axis: int, leaf: LeafSpec) -> tuple[Arrangement, int]:
        mine = msgspec.structs.replace(self, axis=0)
        return mine if axis == self.axis else Cut.whole(axis, leaf), axis

    def without(self, axis: int, leaf: LeafSpec) -> tuple[Arrangement, int] | None:
        if axis == self.axis:  # the mean of what is filled with the mean is the same
            rest = (*leaf.shape[:axis], *leaf.shape[axis + 1 :])
            return Cut(tuple(Steps(0, size) for size in rest)), axis
        return Grow(self.axis - (axis < self.axis), self.before, self.size, self.after_), axis
