"""Go from what fine-tunes were trained from to the centre of what they have learnt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from msgspec import Meta

from surgery_cli.draft.expression import Made, Recipe
from surgery_cli.draft.kernels.gram import ModelStock
from surgery_cli.draft.settings import check_axes, resolve_axes
from surgery_cli.operations.interpolate import gram_of
from surgery_cli.operations.merging import Merging, difference
from surgery_cli.tree.paths import LeafPath


class ModelStockMerge(Merging, tag="model-stock", kw_only=True, frozen=True):
    """Go from the model that fine-tunes were trained from, the source, towards their mean.

    How far, follows leaf by leaf from the angle between what they have learnt: all the way where they agree, not at all
    where they stand at right angles or point away from each other. Of two it is the paper's formula; of more, the mean
    cosine over all pairs is taken for it. Computed in float64, rounded once.

    Source: Jang, Yun and Han, Model Stock: All we need is just a few fine-tuned models.
    """

    axis: Annotated[
        int | tuple[int, ...] | None,
        Meta(
            description="Angles are taken over this axis, or these, for every place along the others: 0 for each output"
            " of a kernel [inputs, outputs]. Over all axes if left out."
        ),
    ] = None

    example: ClassVar[str] = "- op: model-stock\n  at: params\n  with: [runs/other, runs/third]\n"
    least_others: ClassVar[int] = 2

    def check_values(self) -> None:
        super().check_values()
        check_axes(self.axis, "axis")

    @property
    def is_between(self) -> bool:
        return True

    def merged(self, path: LeafPath, recipe: Recipe, others: Sequence[Recipe]) -> Recipe:
        over = None
        if self.axis is not None:
            over = resolve_axes(self.axis, len(recipe.spec.shape), "axis")
        learnt = [difference(other, recipe, path, narrow=False) for other in others]
        gram = gram_of(learnt, over, path)
        return Made(ModelStock(adds=True), (recipe, *learnt, gram), recipe.spec, path)
