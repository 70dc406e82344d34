"""What the settings that an optimizer keeps may be: which numbers its factory has a meaning for. Data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, NamedTuple


class Range(NamedTuple):
    """Numbers that have a meaning, and why others have none.

    ``holds_low`` and ``holds_high``: whether the ends belong to them.
    """

    low: float
    high: float
    why: str
    holds_low: bool = True
    holds_high: bool = True

    def holds(self, number: float) -> bool:
        """True for a number that has a meaning."""
        above = self.low <= number if self.holds_low else self.low < number
        return above and (number <= self.high if self.holds_high else number < self.high)

    @property
    def words(self) -> str:
        """The numbers in words."""
        if self.high == math.inf:
            return f"{self.low:g} or more"
        left_out = [
            f"{end:g}"
            for end, holds in ((self.low, self.holds_low), (self.high, self.holds_high))
            if not holds
        ]
        left = f", {' and '.join(left_out)} itself left out" if left_out else ""
        return f"a number from {self.low:g} to {self.high:g}{left}"


_RATE: Final = Range(
    0, math.inf, "optax subtracts it times the update: below 0 every step goes uphill"
)
_MOMENT: Final = Range(
    0, 1, "optax divides by 1 minus its power, for the bias correction", holds_high=False
)
_AVERAGE: Final = Range(
    0, 1, "it is the share of the old value that stays: at 1 nothing new comes in", holds_high=False
)
_DECAY: Final = Range(0, 1, "it is the share of the old value that stays")
_SIZE: Final = Range(0, math.inf, "optax takes it for a size, which is never negative")
_DIVISOR: Final = Range(0, 1, "it is the share of the average, and optax divides by it", False)

RANGES: Final[Mapping[str, Range]] = {
    "learning_rate": _RATE,
    "b1": _MOMENT,
    "b2": _MOMENT,
    "adam_b1": _MOMENT,
    "adam_b2": _MOMENT,
    "b3": _AVERAGE,
    "decay": _DECAY,
    "decay_rate": _DECAY,
    "momentum": _DECAY,
    "rho": _DECAY,
    "eps": _SIZE,
    "eps_root": _SIZE,
    "max_norm": _SIZE,
    "max_delta": _SIZE,
    "interpolation b1": _DIVISOR,
}
"""By the name of the argument of optax's factories, which ``inject_hyperparams`` keeps; by what a state says it is."""


def corrects_bias(name: str) -> bool:
    """True for a setting by whose power, taken from 1, optax divides."""
    return RANGES.get(name) is _MOMENT
