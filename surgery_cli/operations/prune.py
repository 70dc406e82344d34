"""Set the smallest elements to zero."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from surgery_cli.draft.expression import Made, Recipe, Shared, made
from surgery_cli.draft.kernel import Kernel
from surgery_cli.draft.kernels.largest import (
    IsLargest,
    IsLargestOfGroup,
    LargestCut,
    size_bits,
)
from surgery_cli.draft.kernels.mask import Masked
from surgery_cli.draft.recipe import Draft
from surgery_cli.draft.settings import resolve_axes
from surgery_cli.errors import Gathering, PlanError
from surgery_cli.operations.base import Scene
from surgery_cli.operations.mask import Masking
from surgery_cli.optimizer.follow.states import States
from surgery_cli.tree.paths import LeafPath, Selection
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.words.advice import FieldName, worded
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage

_PATTERN = re.compile(r"([1-9]\d*):([1-9]\d*)")


class Prune(Masking, tag="prune", kw_only=True, frozen=True):
    """Set the smallest elements to 0, by absolute value; the others stay bit for bit.

    Of equal elements, those that come first in C order stay. The count of zeros is the share times the count of
    elements, rounded to the nearest, halves to the even number; elements that are 0 already count among them. First
    moments of the optimizer start anew where elements became 0, second moments stay, so that the next steps are no
    larger than usual. Nothing holds the zeros in later training: that is for the training script's own mask.

    Source: Han et al., Learning both Weights and Connections for Efficient Neural Networks; for n:m, Mishra et al.,
    Accelerating Sparse Deep Neural Networks.
    """

    sparsity: Annotated[
        float | None,
        Meta(description="The share of elements that are 0 afterwards, between 0 and 1."),
    ] = None
    over: Annotated[
        Literal["leaf", "all"],
        Meta(
            description="The share is that of each leaf, or of all leaves together that the edit names."
        ),
    ] = "leaf"
    pattern: Annotated[
        str,
        Meta(
            examples=["2:4"],
            description="`n:m` in place of a share: of every m neighbours along `axis`, the n largest stay.",
        ),
    ] = ""
    axis: Annotated[
        int | None,
        Meta(description="n:m: the axis of the neighbours, such as that of a kernel's inputs, -2."),
    ] = None

    example: ClassVar[str] = "- op: prune\n  at: params/Dense_0/kernel\n  sparsity: 0.5\n"

    def check_values(self) -> None:
        super().check_values()
        if bool(self.pattern) == (self.sparsity is not None):
            raise PlanError(
                "`prune` takes a share or a pattern" + (", not both" if self.pattern else ""),
                why="" if self.pattern else "nothing says how many elements become 0",
                fix=worded("say {sparsity: 0.5}, or {pattern: 2:4} with its {axis}"),
                field="pattern" if self.pattern else "sparsity",
            )
        if self.sparsity is not None and not 0 < self.sparsity < 1:
            raise PlanError(
                worded("{sparsity: {:g}} is no share to prune", self.sparsity),
                why="it lies between 0, where nothing changes, and 1, where nothing is left",
                fix=worded(
                    "write a share such as {sparsity: 0.5}; `replace` with 0 empties leaves"
                ),
                field="sparsity",
            )
        if self.pattern:
            self._group()
        if self.over == "all" if self.pattern else self.axis is not None:
            field = "over" if self.pattern else "axis"
            raise PlanError(
                worded("{} means nothing here", FieldName(field)),
                why="a pattern holds in every leaf"
                if self.pattern
                else "a share has no neighbours",
                fix="leave it out",
                field=field,
            )
        if self.pattern and self.axis is None:
            raise PlanError(
                worded("{pattern: {}} needs {axis}", self.pattern),
                why="nothing says along which axis neighbours are counted",
                fix=worded("add {axis: -2} for the inputs of a kernel [inputs, outputs], say"),
                field="axis",
            )

    def output(self, spec: LeafSpec) -> LeafSpec:
        super().output(spec)
        if self.pattern and self.axis is not None:
            (axis,) = resolve_axes(self.axis, len(spec.shape), "axis")
            _, size = self._group()
            if spec.shape[axis] % size:
                raise PlanError(
                    f"{spec.type_text} has no whole groups of {size} along axis {axis}",
                    why=f"its length there is {spec.shape[axis]}",
                    fix=worded("choose another {axis}, or leave it out with {except}"),
                    field="axis",
                )
        return spec

    def inputs(self, path: LeafPath, recipe: Recipe, scene: States) -> tuple[Recipe, ...]:
        """Which elements stay."""
        if not self.pattern:
            return (self._masks({path: recipe})[path],)
        count, size = self._group()
        axis = (self.axis or 0) % len(recipe.spec.shape)
        return (_true_or_false(IsLargestOfGroup(count, size, axis), (recipe,), path),)

    def maker(
        self, named: Selection, draft: Draft, scene: Scene
    ) -> Callable[[LeafPath, Recipe], Recipe]:
        if self.over == "leaf" or self.pattern:
            return super().maker(named, draft, scene)
        gathering = Gathering()
        recipes = {path: draft.leaves[path].recipe for path in named}
        for path, recipe in recipes.items():
            with gathering.catching(path=str(path)):
                self.output(recipe.spec)
        gathering.raise_if_any()
        masks = self._masks(recipes) if recipes else {}
        return lambda path, recipe: made(Masked(), (recipe, masks[path]), recipe.spec, path)

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        after = super().rewrite(draft, scene)
        if self.sparsity is None or self.over == "all":
            return after
        sizes = {path: draft.leaves[path].spec.size for path in scene.select(self, draft)}
        notes = (
            (
                quoted((p for p, n in sizes.items() if self._zeros(n) == n), 3),
                "all elements become 0",
            ),
            (
                quoted((p for p, n in sizes.items() if not self._zeros(n)), 3),
                "no element becomes 0",
            ),
        )
        said = worded("{sparsity: {:g}} rounds to that", self.sparsity)
        return after.noting(
            *(
                Consequence(DocsPage.PRUNE, f"of {where}, {what}: {said}")
                for where, what in notes
                if where
            )
        )

    def _zeros(self, count: int) -> int:
        """How many of so many elements are 0 afterwards."""
        return round((self.sparsity or 0.0) * count)

    def _masks(self, leaves: Mapping[LeafPath, Recipe]) -> dict[LeafPath, Recipe]:
        """Which elements are among the largest of all of these leaves."""
        inputs = tuple(leaves.values())
        specs = [leaf.spec for leaf in inputs]
        total = sum(spec.size for spec in specs)
        zeros = self._zeros(total)
        cut = LeafSpec(kind=LeafKind.NUMPY, shape=(2,), dtype="int64")
        first = next(iter(leaves))
        found = Shared(LargestCut(total - zeros), inputs, cut, first)
        masks: dict[LeafPath, Recipe] = {}
        before, bits = 0, size_bits(specs)
        for path, leaf in leaves.items():
            masks[path] = _true_or_false(IsLargest(bits, before), (leaf, found), path)
            before += leaf.spec.size
        return masks

    def _group(self) -> tuple[int, int]:
        """How many of how many neighbours stay."""
        found = _PATTERN.fullmatch(self.pattern)
        count, size = (int(found[1]), int(found[2])) if found else (0, 0)
        if not 0 < count < size:
            raise PlanError(
                worded("{pattern: {}} is no pattern", self.pattern),
                why="`n:m` means that of every m neighbours n stay, fewer than m",
                fix=worded("write {pattern: 2:4}, say"),
                field="pattern",
            )
        return count, size


def _true_or_false(kernel: Kernel, inputs: tuple[Recipe, ...], path: LeafPath) -> Recipe:
    spec = LeafSpec(kind=LeafKind.NUMPY, shape=inputs[0].spec.shape, dtype="bool")
    return Made(kernel, inputs, spec, path)
