"""Multiply leaves by a number or an array."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from surgery_cli.draft.effect import Effect, Scales
from surgery_cli.draft.expression import Made, Recipe
from surgery_cli.draft.kernel import Kernel
from surgery_cli.draft.kernels.scale import Multiply, Scale
from surgery_cli.draft.settings import check_finite
from surgery_cli.operations.factors import FACTOR, find_array
from surgery_cli.operations.numeric import Numeric
from surgery_cli.optimizer.follow.states import States
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec


class Rescale(Numeric, tag="rescale", kw_only=True, frozen=True):
    """Multiply leaves by a number, or by an array that broadcasts to them.

    A factor that would turn values into zeros, or infinities, of their dtype is refused; subnormal values, that devices
    take for 0, may become 0.
    """

    by: Annotated[
        float | str,
        Meta(
            description="Factor, dimensionless: a number, or an array: `scale.npy`, `f.npz:ENTRY`, a source."
        ),
    ]

    example: ClassVar[str] = "- op: rescale\n  at: params/Dense_0/kernel\n  by: 0.5\n"
    path_fields: ClassVar[tuple[str, ...]] = ("by",)

    def check_values(self) -> None:
        super().check_values()
        if not isinstance(self.by, str):
            check_finite(self.by, "by")

    def kernel(self, path: LeafPath, spec: LeafSpec, scene: States) -> Kernel:
        return Multiply() if isinstance(self.by, str) else Scale(self.by)

    def inputs(self, path: LeafPath, recipe: Recipe, scene: States) -> tuple[Recipe, ...]:
        if not isinstance(self.by, str):
            return ()
        return (find_array(self.by, path, recipe.spec, scene, FACTOR),)

    @property
    def effect(self) -> Effect:
        return Scales(None if isinstance(self.by, str) else self.by)

    def effect_on(self, recipe: Recipe, before: LeafSpec) -> Effect:
        if isinstance(self.by, str) and isinstance(recipe, Made):
            return Scales(recipe.inputs[1])
        return self.effect
