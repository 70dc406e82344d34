"""Set to zero what a mask leaves out."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from surgery_cli.draft.effect import Effect, Masks
from surgery_cli.draft.expression import Made, Recipe
from surgery_cli.draft.kernel import Kernel
from surgery_cli.draft.kernels.mask import Masked
from surgery_cli.operations.factors import find_array
from surgery_cli.operations.numeric import Numeric
from surgery_cli.optimizer.follow.states import States
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec


class Masking(Numeric):
    """Elements become 0 where a mask, the second input of the kernel, says so."""

    @property
    def effect(self) -> Effect:
        return Masks()

    def effect_on(self, recipe: Recipe, before: LeafSpec) -> Effect:
        return Masks(recipe.inputs[1]) if isinstance(recipe, Made) else Masks()

    def kernel(self, path: LeafPath, spec: LeafSpec, scene: States) -> Kernel:
        return Masked()


class Mask(Masking, tag="mask", kw_only=True, frozen=True):
    """Set elements to 0 where an array is 0 or false; the others stay bit for bit.

    First moments of the optimizer start anew there, second moments stay, so that the next steps are no larger than
    usual. Nothing holds the zeros in later training: that is for the training script's own mask.
    """

    by: Annotated[
        str,
        Meta(
            description="The mask, which broadcasts to the leaf: `mask.npy`, `masks.npz:ENTRY`, `masks.npz` with an"
            " entry at the path of every leaf, a source."
        ),
    ]

    example: ClassVar[str] = "- op: mask\n  at: params/Dense_0/kernel\n  by: masks/kernel.npy\n"
    path_fields: ClassVar[tuple[str, ...]] = ("by",)

    def inputs(self, path: LeafPath, recipe: Recipe, scene: States) -> tuple[Recipe, ...]:
        return (find_array(self.by, path, recipe.spec, scene, "mask"),)
