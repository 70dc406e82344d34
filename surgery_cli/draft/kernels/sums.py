"""A leaf plus something else, random values or another leaf; means and deviations that sums go by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from surgery_cli.draft.expression import Made, Recipe
from surgery_cli.draft.kernel import Kernel, Kit, Measurement, Place
from surgery_cli.draft.kernels.lost_values import rounded_sum
from surgery_cli.draft.kernels.root_of_squares import root_of_squares
from surgery_cli.errors import ValueRefusal
from surgery_cli.tree.dtypes import is_complex
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.words.advice import worded


class Plus(Kernel, frozen=True, tag="plus"):
    """``keep`` times the first input plus ``by`` times the second, and times the third, a measurement, if there is one.

    Summed in float64, rounded once.
    """

    by: float = 1.0
    keep: float = 1.0

    def compute(self, blocks: Sequence[Any], kit: Kit, at: Place) -> Any:
        leaf, other, *measured = blocks

        def scaled(x: Any) -> Any:
            term = x * self.by
            return term * measured[0] if measured else term

        term = kit.in_float64(other, scaled)
        total = kit.in_float64(leaf, lambda x: x * self.keep + term)
        return rounded_sum(total, kit, at)


class LeafMean(Measurement, frozen=True, tag="leaf_mean"):
    """The mean of a leaf."""

    def measure(self, blocks: Sequence[Any], kit: Kit, at: Place) -> Any:
        size = at.inputs[0].size
        return kit.in_float64(blocks[0], lambda x: kit.xp.sum(x, keepdims=True) / size)


class Deviation(Measurement, frozen=True, tag="deviation"):
    """The standard deviation of a leaf, the first input, from its mean, the second."""

    keeps_zeros: bool = False

    @property
    def combine(self) -> str:
        return "hypot"

    def measure(self, blocks: Sequence[Any], kit: Kit, at: Place) -> Any:
        leaf, mean = blocks
        size = at.inputs[0].size

        def share(x: Any) -> Any:
            return root_of_squares(kit.xp, x - mean) / math.sqrt(size)

        return kit.in_float64(leaf, share)

    def finish(self, measured: Any, at: Place) -> Any:
        deviation = float(measured.reshape(()))
        if math.isfinite(deviation) and (deviation or self.keeps_zeros):
            return measured
        raise ValueRefusal(
            f"'{at.path}' has no standard deviation to go by",
            why=f"it is {deviation:g}" + ("" if deviation else ": all its elements are equal"),
            fix=worded(
                "leave it out with {except}, say {on_zero: keep} to keep such leaves as they are, or give {std} without"
                " {relative}"
            )
            if deviation == 0
            else "look for NaN and infinities with `surgery inspect --stats`",
            path=str(at.path),
        )


class MeanAlong(Measurement, frozen=True, tag="mean_along"):
    """The mean along one axis: [that axis of size 1, or without it], float64."""

    axis: int
    keeps_places: ClassVar[bool] = False

    def axes(self, ndim: int) -> tuple[int, ...]:
        return (self.axis,)

    def measure(self, blocks: Sequence[Any], kit: Kit, at: Place) -> Any:
        size = max(at.inputs[0].shape[self.axis], 1)
        return kit.in_float64(
            blocks[0], lambda x: kit.xp.sum(x, axis=self.axis, keepdims=True) / size
        )


class DeviationAlong(Measurement, frozen=True, tag="deviation_along"):
    """The standard deviation along one axis, from the mean along it, the second input: [the mean's shape], float64."""

    axis: int
    keeps_places: ClassVar[bool] = False

    @property
    def combine(self) -> str:
        return "hypot"

    def axes(self, ndim: int) -> tuple[int, ...]:
        return (self.axis,)

    def measure(self, blocks: Sequence[Any], kit: Kit, at: Place) -> Any:
        leaf, mean = blocks
        size = max(at.inputs[0].shape[self.axis], 1)

        def share(x: Any) -> Any:
            return root_of_squares(kit.xp, x - mean, (self.axis,)) / math.sqrt(size)

        return kit.in_float64(leaf, share)

    def finish(self, measured: Any, at: Place) -> Any:
        largest = float(abs(measured).max())
        if math.isfinite(largest) and largest:
            return measured
        raise ValueRefusal(
            f"'{at.path}' has no standard deviation to go by",
            why=f"it is {largest:g}"
            + ("" if largest else f": along axis {self.axis} all are equal"),
            fix=worded("leave {noise} out")
            if largest == 0
            else "look for NaN and infinities with `surgery inspect --stats`",
            path=str(at.path),
        )


def mean_along(recipe: Recipe, axis: int, path: LeafPath, *, drop: bool = False) -> Made:
    """The mean of a leaf along an axis, which has size 1 in it, or is not there if ``drop``."""
    leaf = recipe.spec
    shape = (*leaf.shape[:axis], *(() if drop else (1,)), *leaf.shape[axis + 1 :])
    dtype = "complex128" if is_complex(leaf.dtype) else "float64"
    spec = LeafSpec(kind=LeafKind.NUMPY, shape=shape, dtype=dtype)
    return Made(MeanAlong(axis), (recipe,), spec, path)


def deviation_along(recipe: Recipe, axis: int, path: LeafPath) -> Made:
    """The standard deviation of a leaf along an axis, which has size 1 in it."""
    mean = mean_along(recipe, axis, path)
    spec = msgspec.structs.replace(mean.spec, dtype="float64")
    return Made(DeviationAlong(axis), (recipe, mean), spec, path)


def deviation_of(recipe: Recipe, path: LeafPath, *, keeps_zeros: bool) -> Recipe:
    """The standard deviation of a leaf: [], float64."""
    number = LeafSpec(kind=LeafKind.NUMPY, dtype="float64")
    mean = Made(LeafMean(), (recipe,), number, path)
    return Made(Deviation(keeps_zeros), (recipe, mean), number, path)
