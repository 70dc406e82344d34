"""Weights by which places along an axis become fewer or more: each new place is a weighted sum of old neighbours."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple, TypeAlias


class Taps(NamedTuple):
    """The weights of one new place: of old places that follow each other, from ``first`` on."""

    first: int
    weights: tuple[float, ...]

    @property
    def stop(self) -> int:
        return self.first + len(self.weights)


Rows: TypeAlias = tuple[Taps, ...]
"""The weights of every new place."""


@lru_cache(maxsize=32)
def interpolation(old: int, new: int, method: str, align: str) -> Rows:
    """The weights by which ``old`` places become ``new`` ones; those of a place add up to 1, but for ``pinv``.

    ``method``: ``linear``, ``cubic`` (Keys, a = -0.5), or ``pinv``, the transposed pseudo-inverse of the linear one.
    ``align``: ``corners``, where the first and the last place stay, or ``centers``, where places are areas, which get
    wider kernels where there are fewer of them.

    Source: scipy.ndimage.zoom with order 1 (linear, corners); jax.image.resize (centers); Beyer et al., FlexiViT, for
    ``pinv``.

    >>> interpolation(3, 5, "linear", "corners")[1]
    Taps(first=0, weights=(0.5, 0.5))
    """
    if method == "pinv":
        return _pseudo_inverse(old, new)
    width = max(old / new, 1.0) if align == "centers" else 1.0
    return tuple(_taps(old, n, new, method, align, width) for n in range(new))


def _taps(old: int, n: int, new: int, method: str, align: str, width: float) -> Taps:
    if align == "corners":
        above, below = n * (old - 1), max(new - 1, 1)
    else:
        above, below = (2 * n + 1) * old - new, 2 * new
    at, reach = above / below, width * (2 if method == "cubic" else 1)
    first, last = max(math.ceil(at - reach), 0), min(math.floor(at + reach), old - 1)
    kernel = _cubic if method == "cubic" else _triangle
    weights = [kernel(abs(above - m * below) / (below * width)) for m in range(first, last + 1)]
    total = math.fsum(weights)
    return _stripped(first, [weight / total for weight in weights])


def _stripped(first: int, weights: list[float]) -> Taps:
    """Without zeros at the ends, so that nothing is read for them."""
    counted = [n for n, weight in enumerate(weights) if weight]
    low, high = (counted[0], counted[-1] + 1) if counted else (0, 1)
    return Taps(first + low, tuple(weights[low:high]))


def _triangle(x: float) -> float:
    return max(1.0 - x, 0.0)


def _cubic(x: float) -> float:
    """Keys, Cubic Convolution Interpolation for Digital Image Processing."""
    if x >= 2:
        return 0.0
    return ((1.5 * x - 2.5) * x) * x + 1 if x < 1 else ((-0.5 * x + 2.5) * x - 4) * x + 2


def _pseudo_inverse(old: int, new: int) -> Rows:
    """The weights with which a kernel for resized patches gives what the old one gives for patches before.

    Of the matrix B that resizes patches, B (B'B)^-1 where there are more places, (BB')^-1 B where there are fewer; as
    rows of B weigh two neighbours at most, what is inverted has three diagonals.
    """
    rows = [_taps(old, n, new, "linear", "centers", 1.0) for n in range(new)]
    dense = [[0.0] * row.first + [*row.weights] + [0.0] * (old - row.stop) for row in rows]
    columns = [list(column) for column in zip(*dense, strict=True)]
    if new >= old:
        solved = _solved(columns, columns)  # (B'B)^-1 B', [old, new]
        return tuple(Taps(0, tuple(row[n] for row in solved)) for n in range(new))
    return tuple(Taps(0, tuple(row)) for row in _solved(dense, dense))


def _solved(rows: list[list[float]], right: list[list[float]]) -> list[list[float]]:
    """(A A')^-1 R for the rows of A, of which only those that follow each other overlap, and the rows of R."""
    diagonal = [math.fsum(x * x for x in row) for row in rows]
    beside = [math.fsum(x * y for x, y in zip(a, b, strict=True)) for a, b in pairwise(rows)]
    found = [list(row) for row in right]
    for n, off in enumerate(beside):
        share = off / diagonal[n]
        diagonal[n + 1] -= share * off
        found[n + 1] = [y - share * x for x, y in zip(found[n], found[n + 1], strict=True)]
    found[-1] = [x / diagonal[-1] for x in found[-1]]
    for n in reversed(range(len(beside))):
        found[n] = [
            (x - beside[n] * y) / diagonal[n] for x, y in zip(found[n], found[n + 1], strict=True)
        ]
    return found
