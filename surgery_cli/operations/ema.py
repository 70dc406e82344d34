"""Take the moving average of leaves over the steps of a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Annotated, ClassVar

from msgspec import Meta

from surgery_cli.errors import PlanError
from surgery_cli.operations.layered import Layered, by_layer, numbers_of
from surgery_cli.operations.step_means import OverSteps
from surgery_cli.optimizer.follow.states import States
from surgery_cli.tree.paths import LeafPath, Selection
from surgery_cli.words.advice import worded


class Ema(OverSteps, tag="ema", kw_only=True, frozen=True):
    """Take the moving average of leaves over steps of the run, as it would stand at the last of them.

    With `decay` it begins with the first step, and then `ema = decay · ema + (1 − decay) · x`, once a saved step. With
    `sigma` weights grow with the time t of training as t^γ, of the width `sigma` relative to the last step; each saved
    step stands for the time that is nearest to it. Sums are taken in float64 and rounded once.

    Source: for `sigma`, Karras et al., Analyzing and Improving the Training Dynamics of Diffusion Models.
    """

    decay: Annotated[
        Layered | None,
        Meta(
            description="What is left of the average at each saved step, between 0 and 1: for one of every k steps of"
            " training, d^k in place of d. Several numbers lie at equal distances over the layers that a number in the"
            " pattern counts."
        ),
    ] = None
    sigma: Annotated[
        Layered | None,
        Meta(
            description="In place of `decay`: the width of the average as a share of the time until the last step,"
            " above 0, below 0.28; several as in `decay`."
        ),
    ] = None

    example: ClassVar[str] = "- op: ema\n  at: params\n  steps: 100..500\n  decay: 0.8\n"

    def check_values(self) -> None:
        if (self.decay is None) == (self.sigma is None):
            raise PlanError(
                "`ema` takes a decay or a width" + ("" if self.decay is None else ", not both"),
                why="" if self.decay is not None else "nothing says how steps are weighed",
                fix=worded("say {decay: 0.9}, or {sigma: 0.1}"),
                field="decay" if self.decay is None else "sigma",
            )
        for number in () if self.decay is None else numbers_of(self.decay):
            if not 0 < number < 1:
                raise PlanError(
                    worded("{decay: {:g}} is no share", number),
                    why="it is what is left of the average, between 0 and 1",
                    fix=worded("write a number such as {decay: 0.9}"),
                    field="decay",
                )
        for number in () if self.sigma is None else numbers_of(self.sigma):
            if not 0 < number < _WIDEST:
                raise PlanError(
                    worded("{sigma: {:g}} is no width of such an average", number),
                    why=f"that of equal weights is {_WIDEST:.4f}, and 0 that of the last step alone",
                    fix=worded("write a number such as {sigma: 0.1}; `swa` weighs all steps alike"),
                    field="sigma",
                )
        super().check_values()

    @property
    def _setting(self) -> Layered:
        given = self.sigma if self.decay is None else self.decay
        assert given is not None
        return given

    def member_weights(self, scene: States) -> tuple[Layered, ...]:
        each = [self._weights(number, scene) for number in numbers_of(self._setting)]
        return each[0] if len(each) == 1 else tuple(zip(*each, strict=True))

    def layer_weights(
        self, named: Selection, scene: States
    ) -> Callable[[LeafPath], tuple[float, ...]]:
        of = by_layer(self._setting, named, "sigma" if self.decay is None else "decay")
        known = cache(lambda number: self._weights(number, scene))
        return lambda path: known(of(path))

    def _weights(self, number: float, scene: States) -> tuple[float, ...]:
        """Of the members in their order, by one decay or width."""
        numbers = self.numbers(scene)
        ordered = sorted(numbers)
        weights = (
            decayed(len(ordered), number)
            if self.decay is not None
            else powers(ordered, exponent(number))
        )
        of = dict(zip(ordered, weights, strict=True))
        return tuple(of[step] for step in numbers)


_WIDEST = 1 / math.sqrt(12)


def decayed(count: int, decay: float) -> list[float]:
    """The weights of so many steps, the oldest first.

    >>> decayed(3, 0.5)
    [0.25, 0.25, 0.5]
    """
    first = decay ** (count - 1)
    return [first, *((1 - decay) * decay ** (count - n) for n in range(2, count + 1))]


def exponent(width: float) -> float:
    """The power γ whose t^γ on [0, 1] has this standard deviation.

    >>> round(exponent(0.1), 4), round(exponent(0.05), 4)
    (6.9372, 16.9722)
    """
    low, high = 0.0, 1.0
    while _width(high) > width:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if _width(middle) > width else (low, middle)
    return high


def _width(power: float) -> float:
    return math.sqrt((power + 1) / ((power + 2) ** 2 * (power + 3)))


def powers(steps: Sequence[int], power: float) -> list[float]:
    """The weights of steps, in order: the share of t^γ in the time that is nearest to each, until the last.

    >>> [round(weight, 4) for weight in powers([100, 200, 300, 400], 0.0)]
    [0.2857, 0.2857, 0.2857, 0.1429]
    """
    last = steps[-1]
    if len(steps) == 1 or last == 0:
        return [1.0] * len(steps)
    middles = [(one + other) / 2 for one, other in pairwise(steps)]
    begin = max(0.0, steps[0] - (middles[0] - steps[0]))
    ends = [time / last for time in (begin, *middles, last)]
    shares = [b ** (power + 1) - a ** (power + 1) for a, b in pairwise(ends)]
    return [share / math.fsum(shares) for share in shares]
