"""The same values in other stored chunks."""

from __future__ import annotations

from typing import Any

from surgery_cli.draft.arrangement import Arrangement, ShapeMap
from surgery_cli.draft.axis_order import AxisOrder
from surgery_cli.draft.expression import Made, Recipe
from surgery_cli.draft.kernel import Piece
from surgery_cli.tree.specs import LeafSpec


class Rechunk(Arrangement, frozen=True, tag="rechunk"):
    """Every element stays in its place; the output's spec says in which chunks they are stored."""

    def output(self, leaf: LeafSpec) -> LeafSpec:
        return leaf

    def arrange(self, block: Any, piece: Piece) -> Any:
        return block

    def reorder(self, order: AxisOrder) -> AxisOrder:
        return order

    def on_each(self) -> Rechunk:
        return self

    @property
    def of_squares(self) -> ShapeMap:
        return self


def values_of(recipe: Recipe) -> Recipe:
    """What values are made of, in whichever chunks they are stored afterwards."""
    is_stored_anew = isinstance(recipe, Made) and isinstance(recipe.kernel, Rechunk)
    return recipe.inputs[0] if isinstance(recipe, Made) and is_stored_anew else recipe
