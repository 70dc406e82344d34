"""How large Adam's next steps are once its moments, or the count by which they are corrected, have changed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

import msgspec

from surgery_cli.optimizer.follow.decays import Decays

_HORIZON: Final = 1000
"""Steps among which the extreme one is looked for."""

Choice: TypeAlias = Callable[[Iterable[float]], float]


class Left(msgspec.Struct, frozen=True):
    """What a plan leaves of moments, as parts of their size: 0 if they restart, 1 if they go on, None if not known."""

    first: float = 0.0
    second: float | None = 0.0


NOTHING: Final = Left()
_ALL: Final = Left(1.0, 1.0)


def _further(sizes: Iterable[float]) -> float:
    """The one that is the most times larger, or smaller, than a usual step."""
    return max(sizes, key=lambda size: abs(math.log(size)))


def most_apart(
    count: float,
    now: float,
    decays: Decays,
    left: Left = _ALL,
    choose: Choice = _further,
    gradient: float = 1.0,
) -> tuple[float, int]:
    """The step that ``choose`` takes of the next ones, in learning rates, and how many steps later it comes.

    ``count`` is what the moments have gathered, ``now`` what the clock stands at, ``left`` the parts of the moments
    that are left; gradients of one size and sign become ``gradient``.

    >>> adam = Decays(0.9, 0.999)
    >>> most_apart(100_000, 100_000, adam, NOTHING, max)
    (6.568..., 12)
    >>> most_apart(100_000, 100_000, adam, Left(first=1.0), max)
    (31.622..., 1)
    >>> most_apart(3, 2000, adam)
    (6.1..., ...)
    """
    steps = _steps(count, now, decays, left, gradient)
    found = choose(steps)
    return found, steps.index(found) + 1


def step_under_old_moments(scale: float, count: float, decays: Decays) -> tuple[float, int]:
    """Adam's largest step (its smallest if params grew) under old moments, in usual steps, and when it comes.

    Params times ``scale`` get gradients 1/scale.

    >>> step_under_old_moments(0.1, math.inf, Decays(0.9, 0.999))
    (5.201..., 17)
    >>> round(step_under_old_moments(10.0, math.inf, Decays(0.9, 0.999))[0], 3)
    0.104
    """
    choose = max if abs(scale) <= 1 else min
    return most_apart(count, count, decays, choose=choose, gradient=1 / scale)


def _steps(count: float, now: float, decays: Decays, left: Left, gradient: float) -> list[float]:
    """The next steps in learning rates.

    Under gradients of one size and sign, moments stand at 1 - b^count; k steps later, at b^k of what was left of that,
    plus 1 - b^k under the new ``gradient``; and the optimizer divides by 1 - b^(now + k).
    """

    def moment(b: float, part: float, k: int, new: float) -> float:
        return float((part * b**k * (1 - b**count) + (1 - b**k) * new) / (1 - b ** (now + k)))

    second = left.second or 0.0
    return [
        abs(moment(decays.first, left.first, k, gradient))
        / math.sqrt(moment(decays.second, second, k, gradient**2))
        for k in range(1, _HORIZON)
    ]
