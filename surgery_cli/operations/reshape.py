"""Give leaves another shape, their elements in order."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

from msgspec import Meta

from surgery_cli.draft.arrangement import Arrangement
from surgery_cli.draft.kernels.reshape import Reshape as Reshaping
from surgery_cli.errors import PlanError
from surgery_cli.operations.rearranging import Rearranging
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.advice import worded


class Reshape(Rearranging, tag="reshape", kw_only=True, frozen=True):
    """Give leaves another shape, their elements in C order, as `numpy.reshape` does."""

    shape: Annotated[
        tuple[int, ...],
        Meta(description="The new shape; one of its numbers may be -1: what is left."),
    ]

    example: ClassVar[str] = "- op: reshape\n  at: params/Dense_0/kernel\n  shape: [2, 6]\n"

    def map(self, leaf: LeafSpec) -> Arrangement:
        open_axes = [n for n, size in enumerate(self.shape) if size == -1]
        if len(open_axes) > 1 or any(size < -1 for size in self.shape):
            raise PlanError(
                worded("{shape: {}} is no shape", list(self.shape)),
                why="sizes are 0 or more, and one of them may be -1",
                fix=worded("write the sizes of all axes, such as {shape: [64, -1]}"),
                field="shape",
            )
        known = math.prod(size for size in self.shape if size != -1)
        rest = leaf.size // known if known else 0
        shape = tuple(rest if size == -1 else size for size in self.shape)
        if math.prod(shape) != leaf.size:
            raise PlanError(
                worded("{} does not become {shape: {}}", leaf.type_text, list(self.shape)),
                why=f"the products of {list(leaf.shape)} and {list(shape)} are not the same",
                fix=worded(
                    "write sizes whose product is that of the leaf's; one of them may be -1"
                ),
                field="shape",
            )
        return Reshaping(shape)

    def undoing(self, leaf: LeafSpec) -> Rearranging:
        return Reshape(shape=leaf.shape)
