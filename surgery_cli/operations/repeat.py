"""Repeat the places along an axis of leaves, or leaves as a whole: layers of a stack, experts."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from surgery_cli.draft.arrangement import Arrangement
from surgery_cli.draft.kernels.copies import Copies
from surgery_cli.draft.kernels.take import Take
from surgery_cli.draft.settings import resolve_axes
from surgery_cli.errors import PlanError
from surgery_cli.inputs.limits import PLACES
from surgery_cli.operations.rearranging import Rearranging
from surgery_cli.operations.slice import Slice
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.advice import worded


class Repeat(Rearranging, tag="repeat", kw_only=True, frozen=True):
    r"""Repeat the places along an axis, the layers of a stack say, or whole leaves along a new axis: experts.

    Copies come with the optimizer's slots of what they are copies of. They stay alike as long as their gradients are:
    `noise` parts them. Layers under names with numbers are repeated by `copy`, `params/layers_{0..3}` to
    `params/layers_{4..7}`, after a `rename` to `params/layers_{0..6..2}` where each is to stand beside its copy.

    Source: Gong et al., Efficient Training of BERT by Progressively Stacking; Komatsuzaki et al., Sparse Upcycling.
    """

    axis: Annotated[
        int,
        Meta(
            description="The axis whose places are repeated, or where the new axis stands in the result; -1: the last."
        ),
    ]
    times: Annotated[
        Annotated[int, Meta(ge=2)], Meta(description="How many there are of each afterwards.")
    ]
    order: Annotated[
        Literal["interleaved", "tiled"] | None,
        Meta(
            description="`interleaved`: each beside its copies (a a b b), if nothing is said; `tiled`: all of them,"
            " then all again (a b a b)."
        ),
    ] = None
    new_axis: Annotated[
        bool, Meta(description="The whole leaf is repeated, along an axis that it has not yet.")
    ] = False

    example: ClassVar[str] = (
        "- op: repeat\n  at: params/Dense_0/kernel\n  axis: 0\n  times: 2\n  new_axis: true\n"
    )

    @property
    def along(self) -> int | None:
        return None if self.new_axis else self.axis

    def check_values(self) -> None:
        super().check_values()
        PLACES.check(self.times, "the repeated axis", PlanError)
        if self.new_axis and self.order is not None:
            raise PlanError(
                worded("{order: {}} means nothing with {new_axis}", self.order),
                why="along a new axis all places are copies of one leaf",
                fix=worded("leave {order} out"),
                field="order",
            )

    def map(self, leaf: LeafSpec) -> Arrangement:
        (axis,) = resolve_axes(self.axis, len(leaf.shape) + self.new_axis, "axis")
        if self.new_axis:
            return Copies(axis, self.times)
        size = leaf.shape[axis]
        count = self.times * size
        PLACES.check(count, "the repeated axis", PlanError)
        by_turns = self.order == "tiled"
        return Take(axis, tuple(n % size if by_turns else n // self.times for n in range(count)))

    def undoing(self, leaf: LeafSpec) -> Rearranging | None:
        if self.new_axis:
            return None
        (axis,) = resolve_axes(self.axis, len(leaf.shape), "axis")
        places = f":{leaf.shape[axis]}" if self.order == "tiled" else f"::{self.times}"
        return Slice(slices=", ".join([":"] * axis + [places]))
