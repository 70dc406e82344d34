"""The root of a sum of squares, of numbers of any size."""

from __future__ import annotations

from typing import Any


def root_of_squares(xp: Any, x: Any, axes: tuple[int, ...] | None = None) -> Any:
    """The root of the sum of squared magnitudes over ``axes`` (all if None), which stay with size 1.

    Squares are taken of shares of the largest: those of float64 above 1e154 are infinite, and below 1e-154 they vanish.
    """
    size = xp.abs(x)
    largest = xp.max(size, axis=axes, keepdims=True, initial=0.0)
    size = size / xp.where(largest == 0, 1.0, largest)
    return largest * xp.sqrt(xp.sum(size * size, axis=axes, keepdims=True))
