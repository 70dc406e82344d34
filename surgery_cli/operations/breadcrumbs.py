"""Merge what fine-tunes have learnt, without its smallest and its largest changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from surgery_cli.draft.expression import Made, Recipe
from surgery_cli.draft.kernels.deltas import Negation
from surgery_cli.operations.base import Scene
from surgery_cli.operations.electing import Thinning, largest_of, mask_of, masked
from surgery_cli.operations.layered import Layered, by_layer, check_layered
from surgery_cli.tree.paths import Selection


class Breadcrumbs(Thinning, tag="breadcrumbs", kw_only=True, frozen=True):
    """Add to the source what fine-tunes of it have learnt, without the smallest changes, and without the largest.

    Of each difference the share `outliers` of the largest elements is left out, and of the rest the largest stay, so
    that the share `density` of all is left (fewer are left out at the top where both do not fit); how many go is
    rounded as in `prune`: to the nearest, of halves to the even number. Infinities are among the largest; a leaf with
    NaN is refused. Then they are added as in `task-arithmetic`, divided by the sum of the weights if `normalize`, or
    with elected signs as in `ties`. Computed in float32 or wider, rounded once.

    Source: Davari and Belilovsky, Model Breadcrumbs: Scaling Multi-Task Model Merging with Sparse Masks.
    """

    outliers: Annotated[
        Layered,
        Meta(
            description="The share of the largest elements that is left out, from 0 to 1; several as in `density`."
        ),
    ] = 0.01
    consensus: Annotated[
        Literal["linear", "ties"],
        Meta(description="Add all, or only those that have the elected sign."),
    ] = "linear"

    example: ClassVar[str] = (
        "- op: breadcrumbs\n  at: params\n  with: [runs/other, runs/third]\n  density: 0.9\n"
    )

    @property
    def elects(self) -> bool:
        return self.consensus == "ties"

    def check_values(self) -> None:
        check_layered(self.outliers, "outliers", 0.0, 1.0, open_low=False)
        super().check_values()

    def thinner(self, named: Selection, scene: Scene) -> Callable[[Made, float, int], Recipe]:
        outliers = by_layer(self.outliers, named, "outliers")

        def thinned(delta: Made, density: float, _: int) -> Recipe:
            size = delta.spec.size
            left = size - round((1 - density) * size)
            top = min(round(outliers(delta.path) * size), size - left)
            kept = masked(delta, largest_of(delta, left + top)) if left + top < size else delta
            return masked(kept, mask_of(Negation(), (largest_of(delta, top),))) if top else kept

        return thinned
