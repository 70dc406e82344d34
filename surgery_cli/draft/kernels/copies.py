"""The same elements again and again, along an axis that is new."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from surgery_cli.draft.arrangement import Arrangement, rearranged
from surgery_cli.draft.axis_order import AxisOrder
from surgery_cli.draft.kernel import Piece, Window
from surgery_cli.tree.specs import LeafSpec


class Copies(Arrangement, frozen=True, tag="copies"):
    """A leaf, ``count`` times along a new axis, which stands at ``axis`` in the result.

    Each copy has chunks of its own, which are the bytes of the leaf's.
    """

    axis: int
    count: int

    def output(self, leaf: LeafSpec) -> LeafSpec:
        shape, origins = [*leaf.shape], [*range(len(leaf.shape))]
        shape.insert(self.axis, self.count)
        new = rearranged(leaf, shape, [*origins[: self.axis], None, *origins[self.axis :]])
        return msgspec.structs.replace(
            new, chunk_shape=self._one(new.chunk_shape), write_shape=self._one(new.write_shape)
        )

    def _one(self, grid: tuple[int, ...] | None) -> tuple[int, ...] | None:
        return None if grid is None else (*grid[: self.axis], 1, *grid[self.axis + 1 :])

    def pieces(self, out: Window, inputs: Sequence[LeafSpec], output: LeafSpec) -> Iterator[Piece]:
        yield Piece(0, (*out[: self.axis], *out[self.axis + 1 :]), out)

    def arrange(self, block: Any, piece: Piece) -> Any:
        return block.reshape(*block.shape[: self.axis], 1, *block.shape[self.axis :])

    def reorder(self, order: AxisOrder) -> AxisOrder:
        return order.with_new(self.axis, self.count)

    def without(self, axis: int, leaf: LeafSpec) -> tuple[Arrangement, int] | None:
        return Copies(self.axis - (axis < self.axis), self.count), axis + (axis >= self.axis)
