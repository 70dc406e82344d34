"""Merge what fine-tunes have learnt, where they agree on its sign."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from surgery_cli.draft.expression import Made, Recipe
from surgery_cli.operations.base import Scene
from surgery_cli.operations.electing import Thinning, largest_of, masked
from surgery_cli.tree.paths import Selection


class Ties(Thinning, tag="ties", kw_only=True, frozen=True):
    """Add to the source what fine-tunes of it have learnt: the largest changes, where they agree on the sign.

    Of each difference the share `density` of the largest elements is left, by absolute value, of equal ones those
    that come first in C order. How many go is rounded as in `prune`: to the nearest, of halves to the even number.
    (mergekit rounds down how many are left, and leaves at least one; the paper says neither: by one element, the two
    may differ. Where none is left, the preview says so.) A leaf with NaN is refused, as NaN has no size. Element by
    element the sign of their sum by weights is elected, above 0 if that is 0, and the mean by weights is taken of
    those that have it. Differences are rounded to float32 once (of float64 leaves they are not); sums are computed in
    float64 and rounded once.

    Source: Yadav et al., TIES-Merging: Resolving Interference When Merging Models.
    """

    example: ClassVar[str] = (
        "- op: ties\n  at: params\n  with: [runs/other, runs/third]\n  density: 0.2\n"
    )

    @property
    def elects(self) -> bool:
        return True

    def thinner(self, named: Selection, scene: Scene) -> Callable[[Made, float, int], Recipe]:
        def thinned(delta: Made, density: float, _: int) -> Recipe:
            if density == 1:
                return delta
            count = delta.spec.size - round((1 - density) * delta.spec.size)
            return masked(delta, largest_of(delta, count))

        return thinned
