"""Add what fine-tunes have learnt to what they were trained from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from msgspec import Meta

from surgery_cli.draft.expression import Recipe, made
from surgery_cli.draft.kernels.deltas import AddDeltas
from surgery_cli.operations.base import Scene
from surgery_cli.operations.layered import Layered, by_layer
from surgery_cli.operations.merging import (
    MergeLeaf,
    Merging,
    difference,
    refuse_nothing,
    weights_by_layer,
)
from surgery_cli.tree.paths import LeafPath, Selection


class TaskArithmetic(Merging, tag="task-arithmetic", kw_only=True, frozen=True):
    """Add what fine-tunes have learnt to the model that they were trained from, the source.

    `base + scale · Σ weight · (fine-tune − base)`: a weight below 0 unlearns. Computed in float64, rounded once.

    Source: Ilharco et al., Editing Models with Task Arithmetic.
    """

    scale: Annotated[
        Layered,
        Meta(
            description="By what the sum is multiplied. Several numbers lie at equal distances over the layers that a"
            " number in the pattern counts, with straight lines between them."
        ),
    ] = 1.0
    weights: Annotated[
        tuple[Layered, ...],
        Meta(
            description="One for each fine-tune, in the order of `with`; 1 each if left out. A list in place of a"
            " number goes over the layers."
        ),
    ] = ()

    example: ClassVar[str] = (
        "- op: task-arithmetic\n  at: params\n  with: [runs/other, runs/third]\n  scale: 0.4\n"
    )

    def member_weights(self) -> tuple[Layered, ...]:
        return self.weights

    def check_values(self) -> None:
        refuse_nothing(self.scale, "scale")
        super().check_values()

    def merger(self, named: Selection, scene: Scene) -> MergeLeaf:
        scale = by_layer(self.scale, named, "scale")
        weights = weights_by_layer(self.weights, len(self.others(scene)), named)

        def merged(path: LeafPath, recipe: Recipe, others: Sequence[Recipe]) -> Recipe:
            kernel = AddDeltas(tuple(scale(path) * weight for weight in weights(path)))
            learnt = (difference(other, recipe, path, narrow=False) for other in others)
            return made(kernel, (recipe, *learnt), recipe.spec, path)

        return merged
