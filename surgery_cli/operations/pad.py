"""Give leaves further places along an axis."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from surgery_cli.draft.arrangement import Arrangement
from surgery_cli.draft.effect import Effect, Sets
from surgery_cli.draft.expression import Made, Recipe
from surgery_cli.draft.kernels.cut import Grow
from surgery_cli.draft.kernels.fill import Fill
from surgery_cli.draft.settings import check_finite, check_fits, resolve_axes
from surgery_cli.errors import PlanError
from surgery_cli.operations.rearranging import Rearranging
from surgery_cli.operations.slice import part_of
from surgery_cli.optimizer.follow.states import States
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.words.advice import worded


class Pad(Rearranging, tag="pad", kw_only=True, frozen=True):
    """Give leaves further places along an axis, with one number in them; `slice` takes them off again.

    First moments of the optimizer are 0 there, second moments what they are in the mean along the axis.
    """

    axis: Annotated[int, Meta(description="The axis that gets longer; -1: the last.")]
    before: Annotated[
        Annotated[int, Meta(ge=0)], Meta(description="How many places in front of the first.")
    ] = 0
    after: Annotated[
        Annotated[int, Meta(ge=0)], Meta(description="How many places behind the last.")
    ] = 0
    value: Annotated[float, Meta(description="The number in the new places of the leaf.")] = 0.0

    example: ClassVar[str] = "- op: pad\n  at: params/Dense_0/kernel\n  axis: 0\n  after: 2\n"

    @property
    def filling(self) -> Effect:
        return Sets(self.value)

    @property
    def along(self) -> int:
        return self.axis

    def check_values(self) -> None:
        super().check_values()
        check_finite(self.value, "value")
        if not self.before + self.after:
            raise PlanError(
                "no places are asked for",
                why=worded("{before} and {after} are 0"),
                fix=worded("say how many, such as {after: 128}"),
                field="after",
            )

    def map(self, leaf: LeafSpec) -> Arrangement:
        (axis,) = resolve_axes(self.axis, len(leaf.shape), "axis")
        return Grow(axis, self.before, leaf.shape[axis], self.after)

    def undoing(self, leaf: LeafSpec) -> Rearranging:
        (axis,) = resolve_axes(self.axis, len(leaf.shape), "axis")
        return part_of(leaf, axis, self.before)

    def output(self, spec: LeafSpec) -> LeafSpec:
        after = super().output(spec)
        if spec.dtype != "bool" or self.value not in (0, 1):
            check_fits(self.value, spec, "value")
        return after

    def inputs(self, path: LeafPath, recipe: Recipe, scene: States) -> tuple[Recipe, ...]:
        spec = LeafSpec(kind=LeafKind.NUMPY, dtype=recipe.spec.dtype)
        return (Made(Fill(self.value), (), spec, path),)
