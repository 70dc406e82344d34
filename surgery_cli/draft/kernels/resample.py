"""Leaves with more or fewer places along axes, each a weighted sum of old ones: grids of positions, patches."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from surgery_cli.draft.arrangement import ShapeMap, rearranged
from surgery_cli.draft.kernel import Kit, Piece, Place, Window
from surgery_cli.draft.kernels.cut import Cut
from surgery_cli.draft.kernels.interpolation import Rows, interpolation
from surgery_cli.draft.kernels.lost_values import refuse_lost
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.advice import worded


class Grid(NamedTuple):
    """An axis that holds a grid in C order, behind ``kept`` places that stay: its sizes before and afterwards."""

    axis: int
    old: tuple[int, ...]
    new: tuple[int, ...]
    kept: int = 0

    @property
    def size(self) -> int:
        """How many places the axis has afterwards."""
        return self.kept + math.prod(self.new)

    def rows(self, part: slice) -> tuple[int, int]:
        """The places along the first axis of the new grid in which a part of the axis lies."""
        inner = math.prod(self.new[1:])
        return max(part.start - self.kept, 0) // inner, -(-max(part.stop - self.kept, 0) // inner)

    def reads(self, part: slice, first: Rows) -> slice:
        """The places of the old axis of which a part of the new one is made; ``first`` are the first axis' weights."""
        inner = math.prod(self.old[1:])
        low, high = self.rows(part)
        needed = first[low:high]
        if not needed:
            return part
        start = self.kept + min(row.first for row in needed) * inner
        stop = self.kept + max(row.stop for row in needed) * inner
        return slice(min(part.start, start) if part.start < self.kept else start, stop)


class Resample(ShapeMap, frozen=True, tag="resample"):
    """Weighted sums along axes, in float64 or complex128, rounded once; see ``interpolation`` for the weights."""

    grids: tuple[Grid, ...]
    method: str
    align: str

    def output(self, leaf: LeafSpec) -> LeafSpec:
        shape = [*leaf.shape]
        for grid in self.grids:
            shape[grid.axis] = grid.size
        return rearranged(leaf, shape, range(len(shape)))

    def on_each(self) -> Resample:
        grids = tuple(grid._replace(axis=grid.axis + 1) for grid in self.grids)
        return msgspec.structs.replace(self, grids=grids)

    def along(self, axis: int, leaf: LeafSpec) -> tuple[ShapeMap, int]:
        mine = tuple(grid._replace(axis=0) for grid in self.grids if grid.axis == axis)
        own = msgspec.structs.replace(self, grids=mine)
        return own if mine else Cut.whole(axis, leaf), axis

    @property
    def of_squares(self) -> Resample:
        return msgspec.structs.replace(self, method="linear")

    def is_identity(self, inputs: Sequence[LeafSpec], output: LeafSpec) -> bool:
        return all(grid.old == grid.new for grid in self.grids)

    def pieces(self, out: Window, inputs: Sequence[LeafSpec], output: LeafSpec) -> Iterator[Piece]:
        read = [*out]
        for grid in self.grids:
            read[grid.axis] = grid.reads(out[grid.axis], self._weights(grid)[0])
        yield Piece(0, tuple(read), out)

    def compute(self, blocks: Sequence[Any], kit: Kit, at: Place) -> Any:
        (block,) = blocks

        def resampled(x: Any) -> Any:
            for grid in self.grids:
                start = at.start[grid.axis]
                part = slice(start, start + at.shape[grid.axis])
                x = self._along(x, grid, part, kit)
            return x

        wide = kit.in_float64(block, resampled)
        new = kit.cast(wide, at.output.dtype)
        fix = worded("cast the leaf to a wider dtype first, or leave it out with {except}")
        kit.apply(lambda: refuse_lost(wide, new, at, fix=fix, least=0.0))
        return new

    def _weights(self, grid: Grid) -> list[Rows]:
        return [
            interpolation(old, new, self.method, self.align)
            for old, new in zip(grid.old, grid.new, strict=True)
        ]

    def _along(self, x: Any, grid: Grid, part: slice, kit: Kit) -> Any:
        """A part of a new axis from what ``reads`` says of the old one."""
        axis, weights = grid.axis, self._weights(grid)
        low, high = grid.rows(part)
        staying = max(min(part.stop, grid.kept) - part.start, 0)
        before = _taken(x, axis, range(staying))
        if low >= high:
            return before
        origin = min(row.first for row in weights[0][low:high])
        read = grid.reads(part, weights[0])
        inner = math.prod(grid.old[1:])
        start = grid.kept + origin * inner - read.start
        x = _taken(x, axis, range(start, read.stop - read.start))
        lead, tail = x.shape[:axis], x.shape[axis + 1 :]
        x = x.reshape(*lead, x.shape[axis] // inner, *grid.old[1:], *tail)
        x = _summed(
            x, axis, [(row.first - origin, row.weights) for row in weights[0][low:high]], kit
        )
        for n, rows in enumerate(weights[1:], 1):
            x = _summed(x, axis + n, rows, kit)
        inner = math.prod(grid.new[1:])
        x = x.reshape(*lead, (high - low) * inner, *tail)
        begin = max(part.start - grid.kept, 0) - low * inner
        count = part.stop - part.start - staying
        x = _taken(x, axis, range(begin, begin + count))
        return kit.xp.concatenate([before, x], axis) if staying else x


def _taken(x: Any, axis: int, places: range) -> Any:
    """Some places along an axis that follow each other."""
    return x[(*(slice(None),) * axis, slice(places.start, places.stop))]


def _summed(x: Any, axis: int, rows: Sequence[tuple[int, tuple[float, ...]]], kit: Kit) -> Any:
    """New places along an axis, each the sum of old ones from a first one on, by weights."""
    total = None
    for n in range(max(len(weights) for _, weights in rows)):
        places = [first + n * (n < len(weights)) for first, weights in rows]
        shares = [weights[n] if n < len(weights) else 0.0 for _, weights in rows]
        column = kit.xp.asarray(shares, dtype="float64").reshape(-1, *(1,) * (x.ndim - axis - 1))
        term = kit.xp.take(x, kit.xp.asarray(places), axis=axis) * column
        total = term if total is None else total + term
    return total
