"""A leaf plus something else: random values, or another leaf."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from surgery_cli.draft.expression import Made, Recipe
from surgery_cli.draft.kernel import Kernel, Kit, Measurement, Place
from surgery_cli.draft.kernels.lost_values import refuse_lost
from surgery_cli.errors import ValueRefusal
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.words.advice import worded


class Plus(Kernel, frozen=True, tag="plus"):
    """``keep`` times the first input plus ``by`` times the second, and times the third, a number, if there is one.

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
        new = kit.cast(total, at.output.dtype)
        fix = worded("cast the leaf to a wider dtype first, or leave it out with {except}")
        kit.apply(lambda: refuse_lost(total, new, at, fix=fix, least=0.0))
        return new


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
            from_mean = x - mean
            return kit.xp.sqrt(kit.xp.sum(from_mean * from_mean, keepdims=True) / size)

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


def deviation_of(recipe: Recipe, path: LeafPath, *, keeps_zeros: bool) -> Recipe:
    """The standard deviation of a leaf: [], float64."""
    number = LeafSpec(kind=LeafKind.NUMPY, dtype="float64")
    mean = Made(LeafMean(), (recipe,), number, path)
    return Made(Deviation(keeps_zeros), (recipe, mean), number, path)
