"""Take the mean of several checkpoints on the sphere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, ClassVar

from msgspec import Meta

from surgery_cli.draft.expression import Made, Recipe
from surgery_cli.draft.kernels.gram import Karcher
from surgery_cli.errors import PlanError
from surgery_cli.operations.base import Scene
from surgery_cli.operations.interpolate import gram_of
from surgery_cli.operations.layered import Layered, check_layered
from surgery_cli.operations.merging import MergeLeaf, Merging, weights_by_layer
from surgery_cli.tree.paths import LeafPath, Selection


class KarcherMean(Merging, tag="karcher", kw_only=True, frozen=True):
    """Take the mean of checkpoints on the sphere: of their directions, leaf by leaf, times the mean of their norms.

    Of two it is the point half-way on the arc, of more the one from which the arcs to all of them add up to 0. The
    source is the first member. Computed in float64, rounded once.

    Source: Karcher, Riemannian center of mass and mollifier smoothing.
    """

    weights: Annotated[
        tuple[Layered, ...],
        Meta(
            description="One for each member, the source first; equal ones if left out. Above 0. A list in place of a"
            " number goes over the layers."
        ),
    ] = ()

    example: ClassVar[str] = "- op: karcher\n  at: params\n  with: [runs/other, runs/third]\n"
    source_is_base: ClassVar[bool] = False

    def check_values(self) -> None:
        super().check_values()
        for weight in self.weights:
            check_layered(weight, "weights", 0.0, math.inf, open_low=True)
        count = len(self._named) + 1
        if self.weights and len(self.weights) != count:
            raise PlanError(
                f"{len(self.weights)} weights for {count} members",
                why="the source is the first of them",
                fix="give one weight for each member, or none for equal ones",
                field="weights",
            )

    @property
    def is_between(self) -> bool:
        return True

    def merger(self, named: Selection, scene: Scene) -> MergeLeaf:
        weights = weights_by_layer(self.weights, len(self.others(scene)) + 1, named)

        def merged(path: LeafPath, recipe: Recipe, others: Sequence[Recipe]) -> Recipe:
            members = (recipe, *others)
            gram = gram_of(members, None, path)
            return Made(Karcher(shares=weights(path)), (*members, gram), recipe.spec, path)

        return merged
