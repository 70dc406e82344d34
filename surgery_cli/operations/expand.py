"""Give leaves further axes of size 1."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from surgery_cli.draft.arrangement import Arrangement
from surgery_cli.draft.kernels.reshape import Reshape
from surgery_cli.draft.settings import check_axes, resolve_axes
from surgery_cli.operations import reshape
from surgery_cli.operations.rearranging import Rearranging
from surgery_cli.tree.specs import LeafSpec


class Expand(Rearranging, tag="expand", kw_only=True, frozen=True):
    """Give leaves further axes of size 1, as `numpy.expand_dims` does."""

    axis: Annotated[
        int | tuple[int, ...],
        Meta(description="Where the new axis, or axes, stand in the result; -1: last."),
    ]

    example: ClassVar[str] = "- op: expand\n  at: params/Dense_0/kernel\n  axis: 0\n"

    def check_values(self) -> None:
        super().check_values()
        check_axes(self.axis, "axis")

    def map(self, leaf: LeafSpec) -> Arrangement:
        count = 1 if isinstance(self.axis, int) else len(self.axis)
        axes = resolve_axes(self.axis, len(leaf.shape) + count, "axis", "a result")
        sizes = iter(leaf.shape)
        every = range(len(leaf.shape) + count)
        return Reshape(tuple(1 if n in axes else next(sizes) for n in every))

    def undoing(self, leaf: LeafSpec) -> Rearranging:
        return reshape.Reshape(shape=leaf.shape)
