"""Sums of several leaves by weights, and their mean."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from surgery_cli.draft.kernel import Kernel, Kit, Place
from surgery_cli.draft.kernels.lost_values import may_lose, refuse_lost, rounded_sum
from surgery_cli.words.advice import worded


def of_usual_size(weights: tuple[float, ...]) -> tuple[float, ...]:
    """The weights times a power of two, the largest between 1 and 2, equal ones as 1: no sum by them is beyond float64.

    >>> of_usual_size((12.0, 4.0)), of_usual_size((1e308, 1e308))
    ((1.5, 0.5), (1.0, 1.0))
    """
    if len({*weights}) == 1 and weights[0]:
        return (1.0,) * len(weights)
    _, exponent = math.frexp(max(map(abs, weights), default=1.0))
    return tuple(math.ldexp(weight, 1 - exponent) for weight in weights)


class WeightedSum(Kernel, frozen=True):
    """The sum of its inputs by weights, in float64, rounded once; one input stands in memory at a time.

    Subclasses say the weights.
    """

    weights: tuple[float, ...] = ()
    keeps_inputs: ClassVar[bool] = False

    def weights_of(self, at: Place) -> tuple[float, ...]:
        """One for each input."""
        raise NotImplementedError

    def begin(self, kit: Kit, at: Place) -> Any:
        return None

    def add(self, state: Any, number: int, block: Any, kit: Kit, at: Place) -> Any:
        return kit.add_scaled(state, block, self.weights_of(at)[number])

    def result(self, state: Any, kit: Kit, at: Place) -> Any:
        return rounded_sum(state, kit, at)


class WeightedMean(WeightedSum, frozen=True, tag="weighted_mean"):
    """The mean of its inputs by weights, or of equal ones."""

    def weights_of(self, at: Place) -> tuple[float, ...]:
        return of_usual_size(self.weights) or (1.0,) * len(at.inputs)

    def result(self, state: Any, kit: Kit, at: Place) -> Any:
        # divided once, at the end: the mean of equal members is exactly what each of them is
        weights, dtype = self.weights_of(at), at.output.dtype
        divisor = math.fsum(weights)
        smallest = min(abs(weight) for weight in weights if weight)
        if not may_lose(smallest / abs(divisor), dtype):
            return kit.quotient(state, divisor, dtype)
        mean = kit.apply(lambda: state / divisor)
        new = kit.cast(mean, dtype)
        fix = worded("cast the members to a wider dtype first, or leave the leaf out with {except}")
        kit.apply(lambda: refuse_lost(mean, new, at, fix=fix, least=0.0))
        return new
