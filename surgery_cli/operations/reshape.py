"""Give leaves, or some of their axes, another shape, their elements in order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, ClassVar

from msgspec import Meta

from surgery_cli.draft.arrangement import Arrangement
from surgery_cli.draft.kernels.reshape import Reshape as Reshaping
from surgery_cli.draft.settings import check_axes, resolve_axes
from surgery_cli.errors import PlanError
from surgery_cli.operations.rearranging import Rearranging
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.advice import worded


class Reshape(Rearranging, tag="reshape", kw_only=True, frozen=True):
    """Give leaves another shape, their elements in C order, as `numpy.reshape` does.

    With `axis`, some axes only: `axis: 1, shape: [-1, 64]` makes heads of 64 places of what has them side by side, and
    `axis: [1, 2], shape: [-1]` takes heads together again, however many there are.
    """

    shape: Annotated[
        tuple[int, ...],
        Meta(description="The new shape; one of its numbers may be -1: what is left."),
    ]
    axis: Annotated[
        int | tuple[int, ...] | None,
        Meta(
            description="The axis, or axes that follow each other, in whose place `shape` comes; all if left out."
        ),
    ] = None

    example: ClassVar[str] = "- op: reshape\n  at: params/Dense_0/kernel\n  shape: [2, 6]\n"

    def check_values(self) -> None:
        super().check_values()
        check_axes(self.axis, "axis")
        open_axes = [n for n, size in enumerate(self.shape) if size == -1]
        if len(open_axes) > 1 or any(size < -1 for size in self.shape):
            raise PlanError(
                worded("{shape: {}} is no shape", list(self.shape)),
                why="sizes are 0 or more, and one of them may be -1",
                fix=worded("write the sizes of all axes, such as {shape: [64, -1]}"),
                field="shape",
            )

    def map(self, leaf: LeafSpec) -> Arrangement:
        first, after = self._replaced_axes(leaf)
        old = leaf.shape[first:after]
        known = math.prod(size for size in self.shape if size != -1)
        rest = math.prod(old) // known if known else 0
        shape = tuple(rest if size == -1 else size for size in self.shape)
        if math.prod(shape) != math.prod(old):
            raise PlanError(
                worded("{} does not become {shape: {}}", self._shown(leaf), list(self.shape)),
                why=f"the products of {list(old)} and {list(shape)} are not the same",
                fix=f"write sizes whose product is that of {'the leaf' if self.axis is None else 'these axes'}; one of"
                " them may be -1",
                field="shape",
            )
        return Reshaping((*leaf.shape[:first], *shape, *leaf.shape[after:]))

    def _replaced_axes(self, leaf: LeafSpec) -> tuple[int, int]:
        """The first axis that gets the new shape, and the one behind the last."""
        if self.axis is None:
            return 0, len(leaf.shape)
        axes = resolve_axes(self.axis, len(leaf.shape), "axis")
        if list(axes) != [*range(axes[0], axes[0] + len(axes))]:
            raise PlanError(
                worded("{axis: {}} are not axes that follow each other", list(_listed(self.axis))),
                why="elements stay in their order, so that only axes side by side can become others",
                fix="`transpose` them side by side first",
                field="axis",
            )
        return axes[0], axes[-1] + 1

    def _shown(self, leaf: LeafSpec) -> str:
        if self.axis is None:
            return leaf.type_text
        axes = _listed(self.axis)
        named = f"axis {axes[0]}" if len(axes) == 1 else f"axes {', '.join(map(str, axes))}"
        return f"{named} of {leaf.type_text}"

    def undoing(self, leaf: LeafSpec) -> Rearranging:
        return Reshape(shape=leaf.shape)


def _listed(axis: int | tuple[int, ...]) -> Sequence[int]:
    return (axis,) if isinstance(axis, int) else axis
