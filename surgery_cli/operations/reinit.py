"""Draw leaves anew from an initializer."""

from __future__ import annotations

from typing import ClassVar

from surgery_cli.draft.effect import Effect
from surgery_cli.draft.expression import Recipe
from surgery_cli.draft.kernel import Kernel
from surgery_cli.draft.recipe import Draft
from surgery_cli.operations.base import LeafOperation, Scene
from surgery_cli.operations.drawing import Drawing
from surgery_cli.operations.new_shapes import Shape, check_shape, shaped
from surgery_cli.optimizer.follow.states import States
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec


class Reinit(Drawing, LeafOperation, tag="reinit", kw_only=True, frozen=True):
    """Draw leaves anew from an initializer of jax.nn.initializers, in their own shape or another.

    With another shape all slots of the optimizer are what it starts a leaf of that shape with. Values follow from the
    seed and the path alone: another edit, or a later run, with the same seed draws the same ones again. Of leaves with
    more than two axes, the first are counted as a convolution window unless `in_axis` and `out_axis` say otherwise; the
    preview names the fans.
    """

    shape: Shape = None

    example: ClassVar[str] = "- op: reinit\n  at: params/Dense_0/kernel\n  init: lecun_normal\n"

    def leaves_alone(self, spec: LeafSpec) -> bool:
        return spec.has_array and spec.size == 0 and self.shape is None

    def check_values(self) -> None:
        super().check_values()
        check_shape(self.shape)

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        return self.noting_fans_of(self.init, super().rewrite(draft, scene), draft)

    def kernel(self, path: LeafPath, spec: LeafSpec, scene: States) -> Kernel:
        return self.drawn(shaped(spec, self.shape), scene)

    def output(self, spec: LeafSpec) -> LeafSpec:
        return shaped(super().output(spec), self.shape)

    @property
    def effect(self) -> Effect:
        return self.effect_of(self.init)

    def effect_on(self, recipe: Recipe, before: LeafSpec) -> Effect:
        return self.effect_of(self.init_of(recipe.spec))
