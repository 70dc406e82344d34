"""Take the moving average of leaves over the steps of a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, ClassVar

from msgspec import Meta

from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import PlanError
from surgery_cli.operations.base import Scene
from surgery_cli.operations.step_means import OverSteps
from surgery_cli.optimizer.follow.states import States
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.advice import worded


class Ema(OverSteps, tag="ema", kw_only=True, frozen=True):
    """Take the moving average of leaves over steps of the run, as it would stand at the last of them.

    With `decay` it begins with the first step, and then `ema = decay · ema + (1 − decay) · x`, once a saved step. With
    `sigma` weights grow with the time t of training as t^γ, of the width `sigma` relative to the last step; each saved
    step stands for the time that is nearest to it. Sums are taken in float64 and rounded once.

    Source: for `sigma`, Karras et al., Analyzing and Improving the Training Dynamics of Diffusion Models.
    """

    decay: Annotated[
        float | None,
        Meta(
            description="What is left of the average at each saved step, between 0 and 1: for one of every k steps of"
            " training, d^k in place of d."
        ),
    ] = None
    sigma: Annotated[
        float | None,
        Meta(
            description="In place of `decay`: the width of the average as a share of the time until the last step,"
            " above 0, below 0.28."
        ),
    ] = None

    example: ClassVar[str] = "- op: ema\n  at: params\n  steps: 100..500\n  decay: 0.8\n"

    def check(self, named: Sequence[LeafPath], draft: Draft, scene: Scene) -> None:
        if (self.decay is None) == (self.sigma is None):
            raise PlanError(
                "`ema` takes a decay or a width" + ("" if self.decay is None else ", not both"),
                why="" if self.decay is not None else "nothing says how steps are weighed",
                fix=worded("say {decay: 0.9}, or {sigma: 0.1}"),
                field="decay" if self.decay is None else "sigma",
            )
        if self.decay is not None and not 0 < self.decay < 1:
            raise PlanError(
                worded("{decay: {:g}} is no share", self.decay),
                why="it is what is left of the average, between 0 and 1",
                fix=worded("write a number such as {decay: 0.9}"),
                field="decay",
            )
        if self.sigma is not None and not 0 < self.sigma < _WIDEST:
            raise PlanError(
                worded("{sigma: {:g}} is no width of such an average", self.sigma),
                why=f"that of equal weights is {_WIDEST:.4f}, and 0 that of the last step alone",
                fix=worded("write a number such as {sigma: 0.1}; `swa` weighs all steps alike"),
                field="sigma",
            )
        super().check(named, draft, scene)

    def member_weights(self, scene: States) -> tuple[float, ...]:
        numbers = self.numbers(scene)
        ordered = sorted(numbers)
        weights = (
            decayed(len(ordered), self.decay)
            if self.decay is not None
            else powers(ordered, exponent(self.sigma or 0.0))
        )
        of = dict(zip(ordered, weights, strict=True))
        return tuple(of[number] for number in numbers)


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
