"""What operations that give leaves other shapes have in common: each says its map, and all else follows."""

from __future__ import annotations

from typing import Final

import msgspec

from surgery_cli.draft.arrangement import Arrangement, ShapeMap
from surgery_cli.draft.effect import Effect, Rearranges
from surgery_cli.draft.expression import Recipe
from surgery_cli.draft.kernel import Kernel
from surgery_cli.errors import PlanError
from surgery_cli.operations.base import LeafOperation
from surgery_cli.optimizer.follow.states import States
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.words.advice import Text, worded

ARRAYS: Final = (LeafKind.ARRAY, LeafKind.NUMPY)
"""The kinds of leaves that have axes of their own."""


class ShapeEdit(LeafOperation):
    """Same path, perhaps another shape. Subclasses give ``map`` and the effect."""

    def map(self, leaf: LeafSpec) -> ShapeMap:
        """What becomes of such a leaf.

        Raises:
            PlanError: it has no such shape.
        """
        raise NotImplementedError

    def output(self, spec: LeafSpec) -> LeafSpec:
        if spec.kind not in ARRAYS:
            raise PlanError(
                f"{self.name} does not apply to {spec.type_text}",
                why="it is about the axes of arrays",
                fix=worded("leave it out with {except}, or name the leaves more closely"),
            )
        return self.map(spec).output(spec)

    def made(self, path: LeafPath, recipe: Recipe, scene: States) -> Recipe:
        try:
            return super().made(path, recipe, scene)
        except PlanError as error:  # of many leaves, which is meant
            error.problems = tuple(
                msgspec.structs.replace(problem, what=Text(f"'{path}': ", problem.what))
                for problem in error.problems
            )
            raise

    def kernel(self, path: LeafPath, spec: LeafSpec, scene: States) -> Kernel:
        return self.map(spec)


class Rearranging(ShapeEdit):
    """Elements in other places; what fills new places stands in ``inputs``."""

    def map(self, leaf: LeafSpec) -> Arrangement:
        """Where the elements of such a leaf go. Raises as any ``map``."""
        raise NotImplementedError

    @property
    def filling(self) -> Effect | None:
        """What happens to values in new places, of operations that make some."""
        return None

    @property
    def effect(self) -> Effect:
        return Rearranges(fill=self.filling)

    def effect_on(self, recipe: Recipe, before: LeafSpec) -> Effect:
        return Rearranges(self.map(before), self.filling)
