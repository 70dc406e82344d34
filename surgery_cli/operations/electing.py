"""Merges of what fine-tunes have learnt, thinned out first, in which they may elect the sign of each element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, ClassVar

from msgspec import Meta

from surgery_cli.draft.expression import Made, Recipe
from surgery_cli.draft.kernel import Kernel
from surgery_cli.draft.kernels.deltas import AddDeltas, AddElected
from surgery_cli.draft.kernels.largest import IsLargest, LargestCut, size_bits
from surgery_cli.draft.kernels.mask import Masked
from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import PlanError
from surgery_cli.operations.base import Scene
from surgery_cli.operations.layered import (
    Layered,
    all_numbers,
    by_layer,
    check_layered,
    numbers_of,
    shown_layered,
)
from surgery_cli.operations.members import MOST_NAMED
from surgery_cli.operations.merging import (
    MergeLeaf,
    Merging,
    difference,
    refuse_nothing,
    shares_of,
    weights_by_layer,
)
from surgery_cli.tree.paths import LeafPath, Selection
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.words.advice import worded
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.series import folded


class Thinning(Merging, kw_only=True, frozen=True):
    """A merge of differences of which a part is left. Subclasses say which, and whether signs are elected."""

    density: Annotated[
        Layered,
        Meta(
            description="What is left of each difference: a share of its elements, above 0, at most 1. Several numbers"
            " lie at equal distances over the layers that a number in the pattern counts."
        ),
    ]
    scale: Annotated[
        Layered, Meta(description="By what the merged difference is multiplied; as `density`.")
    ] = 1.0
    weights: Annotated[
        tuple[Layered, ...],
        Meta(description="One for each fine-tune, in the order of `with`; 1 each if left out."),
    ] = ()
    normalize: Annotated[
        bool,
        Meta(
            description="Divide by the sum of the weights, of those that count there; none may be below 0 then."
        ),
    ] = True

    takes_complex: ClassVar[bool] = False

    @property
    def elects(self) -> bool:
        """True if only those count, element by element, that have the sign of the sum."""
        raise NotImplementedError

    def thinner(self, named: Selection, scene: Scene) -> Callable[[Made, float, int], Recipe]:
        """What leaves a share of a difference, that of the member of this place in `with`."""
        raise NotImplementedError

    def left_of(self, size: int, density: float) -> int:
        """How many elements are left of so many, on average where chance decides."""
        return size - round((1 - density) * size)

    def member_weights(self) -> tuple[Layered, ...]:
        return self.weights

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        after = super().rewrite(draft, scene)
        selected = scene.select(self, draft)
        named = [path for path in selected if after.leaves[path] is not draft.leaves[path]]
        density = by_layer(self.density, selected, "density") if named else None
        sizes = {path: draft.leaves[path].spec.size for path in named}
        empty = [p for p, n in sizes.items() if n and density and not self.left_of(n, density(p))]
        if not empty:
            return after
        said = worded("{density: {}} rounds to none of their elements", shown_layered(self.density))
        shown = quoted(folded(map(str, empty)), MOST_NAMED)
        return after.noting(
            Consequence(
                DocsPage.TIES,
                f"of {shown}, {self.nothing_left}: {said}",
            )
        )

    nothing_left: ClassVar[str] = "nothing is left of what was learnt"

    def check_values(self) -> None:
        check_layered(self.density, "density", 0.0, 1.0, open_low=True)
        refuse_nothing(self.scale, "scale")
        if self.normalize and any(weight < 0 for weight in all_numbers(self.weights)):
            raise PlanError(
                "a weight is below 0, and weights are divided by their sum",
                why="a sum below 0 turns every difference round, and one near 0 makes them huge",
                fix=worded("{normalize: false} takes weights as they are"),
                field="weights",
            )
        by_layers = any(len(numbers_of(weight)) > 1 for weight in self.weights)
        if self.normalize and self.weights and not self.elects and not by_layers:
            shares_of(all_numbers(self.weights))
        super().check_values()

    def merger(self, named: Selection, scene: Scene) -> MergeLeaf:
        scale = by_layer(self.scale, named, "scale")
        density = by_layer(self.density, named, "density")
        thinned = self.thinner(named, scene)
        weights = weights_by_layer(self.weights, len(self.others(scene)), named)

        def merged(path: LeafPath, recipe: Recipe, others: Sequence[Recipe]) -> Recipe:
            left = (
                thinned(difference(other, recipe, path, narrow=True), density(path), n)
                for n, other in enumerate(others)
            )
            kernel = self._sum(weights(path), scale(path))
            return Made(kernel, (recipe, *left), recipe.spec, path)

        return merged

    def _sum(self, weights: tuple[float, ...], scale: float) -> Kernel:
        if self.elects:
            return AddElected(weights, scale, self.normalize)
        shares = shares_of(weights) if self.normalize else weights
        return AddDeltas(tuple(scale * share for share in shares))


def largest_of(delta: Made, count: int) -> Made:
    """Which elements are among so many of the largest, by absolute value; of equal ones the first in C order."""
    cut = LeafSpec(kind=LeafKind.NUMPY, shape=(2,), dtype="int64")
    found = Made(LargestCut(count), (delta,), cut, delta.path)
    return mask_of(IsLargest(size_bits([delta.spec])), (delta, found))


def mask_of(kernel: Kernel, inputs: tuple[Made, ...]) -> Made:
    """What a kernel says, true or false, of every element of the first input."""
    spec = LeafSpec(kind=LeafKind.NUMPY, shape=inputs[0].spec.shape, dtype="bool")
    return Made(kernel, inputs, spec, inputs[0].path)


def masked(delta: Made, mask: Made) -> Made:
    """What is left where the mask is true, and 0 elsewhere."""
    return Made(Masked(), (delta, mask), delta.spec, delta.path)
