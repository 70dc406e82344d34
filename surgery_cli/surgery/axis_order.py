"""What was done to a leaf, and whether elements of an axis stand in another order since, which no shape shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from surgery_cli.draft.arrangement import Arrangement
from surgery_cli.draft.axis_order import AxisOrder
from surgery_cli.draft.expression import Made, Recipe
from surgery_cli.draft.kernel import Kernel

Step: TypeAlias = tuple[Kernel, tuple[int, ...]]
"""A map, and the shape that it takes."""


def history(recipe: Recipe) -> tuple[list[Step], Recipe]:
    """What was done to a leaf, first to last, and what it was done to."""
    steps: list[Step] = []
    while isinstance(recipe, Made) and recipe.inputs:
        steps.append((recipe.kernel, recipe.inputs[0].spec.shape))
        recipe = recipe.inputs[0]
    return steps[::-1], recipe


def permutes_within_an_axis(steps: Sequence[Step]) -> bool:
    """True if elements of one axis stand in another order afterwards, by whatever axes they are counted then."""
    order: AxisOrder | None = None
    for by, shape in steps:
        before = order or AxisOrder.of(shape)
        if isinstance(by, Arrangement):
            order = by.reorder(before)
        elif not by.keeps_places:
            order = None
        if order is None and before.is_permuted:
            return True
    return order is not None and order.is_permuted
