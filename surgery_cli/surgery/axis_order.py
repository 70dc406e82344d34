"""The order of elements within the axes of a leaf: what keeps it, and what changes it without a shape that shows it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TypeAlias

from surgery_cli.draft.expression import Made, Recipe
from surgery_cli.draft.kernel import Kernel
from surgery_cli.draft.kernels.reshape import Reshape
from surgery_cli.draft.kernels.take import Take
from surgery_cli.operations.transpose import Permutation

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
    """True if elements of one axis stand in another order afterwards, by whatever axes they are counted then.

    Axes that change their places, are split, or are joined to others keep theirs.

    >>> permutes_within_an_axis([(Reshape((4, 2, 3)), (4, 6)), (Permutation((1, 2, 0)), (4, 2, 3))])
    False
    >>> permutes_within_an_axis([(Reshape((4, 2, 3)), (4, 6)), (Permutation((0, 2, 1)), (4, 2, 3))])
    True
    """
    axes: list[list[_Part]] | None = None
    for by, shape in steps:
        if axes is None:
            axes = [[((n,), size)] for n, size in enumerate(shape)]
        match by:
            case Take(index=index) if list(index) != sorted(index):
                return True
            case Permutation(axes=order):
                axes = [axes[n] for n in order]
            case Reshape(shape=new):
                axes = _regrouped([part for axis in axes for part in axis], new)
            case _ if not by.keeps_places:
                if _is_permuted(axes):
                    return True
                axes = None
    return axes is not None and _is_permuted(axes)


_Part: TypeAlias = tuple[tuple[int, ...], int]
"""A part of an axis, by its number and those of the parts that it is of, outer before inner; and its size."""


def _regrouped(rest: list[_Part], shape: Sequence[int]) -> list[list[_Part]] | None:
    """The axes of another shape, by the parts that follow each other in it; None if one is cut across."""
    axes: list[list[_Part]] = []
    rest = [part for part in rest if part[1] != 1]
    for size in shape:
        axes.append([])
        left = size
        while left > 1:
            name, count = rest.pop(0)
            if count > left and count % left == 0:
                rest.insert(0, ((*name, 1), count // left))
                name, count = (*name, 0), left
            if not count or left % count:
                return None
            axes[-1].append((name, count))
            left //= count
    return axes


def _is_permuted(axes: Sequence[Sequence[_Part]]) -> bool:
    order: dict[int, list[tuple[int, ...]]] = defaultdict(list)
    for name, size in (part for axis in axes for part in axis):
        if size > 1:
            order[name[0]].append(name)
    return any(names != sorted(names) for names in order.values())
