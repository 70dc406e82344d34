"""Statistics of a leaf's values, streamed: two passes over blocks, whatever the leaf's size."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from surgery_cli.draft.seen import Moments
from surgery_cli.engine.looks import TILE_ELEMENTS, above, finite, moments_of, real, tiles

if TYPE_CHECKING:
    import numpy as np

    Values = np.ndarray[Any, Any]

BINS = 16


class LeafStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Of a leaf's values: ``mean`` to ``norm`` (Frobenius) over the finite ones, counts of zeros, of the others, and of
    NaN among these.

    ``min`` and ``max`` of integers are exact. ``histogram`` has equal bins from ``min`` to ``max``.
    ``at_largest`` counts values as large as the dtype holds, of floats, ``int8`` and ``int4``.
    """

    mean: float
    std: float
    min: int | float
    max: int | float
    norm: float
    zeros: int
    non_finite: int
    nan: int = 0
    histogram: list[int]
    at_largest: int = 0


def statistics(blocks: Callable[[], Iterable[Values]], largest: float = math.inf) -> LeafStatistics:
    """Statistics of a real or complex leaf (complex values by their magnitude); ``blocks`` is called twice.

    They depend on the values and on their order alone, not on how many come at once. ``norm`` is infinite where it is
    larger than the largest float64. Values are counted that are as large as ``largest``, in size.
    """
    found = moments_of(blocks())
    if not found.size:
        nan = float("nan")
        return LeafStatistics(
            mean=nan,
            std=nan,
            min=nan,
            max=nan,
            norm=0.0,
            zeros=found.zeros,
            non_finite=found.non_finite,
            nan=found.nan,
            histogram=[],
        )
    histogram, at_largest = _counts(blocks, found, largest)
    return LeafStatistics(
        mean=found.center,
        std=found.std,
        min=found.low,
        max=found.high,
        norm=found.norm,
        zeros=found.zeros,
        non_finite=found.non_finite,
        nan=found.nan,
        histogram=histogram,
        at_largest=at_largest,
    )


def _counts(
    blocks: Callable[[], Iterable[Values]], found: Moments, largest: float
) -> tuple[list[int], int]:
    """The histogram, and how many values are as large as ``largest``."""
    import numpy as np

    histogram = np.zeros(BINS, np.int64)
    low, high = found.low, found.high
    converted, first = None, low / 2
    half = high / 2 - first  # a range may be wider than the largest float64
    if isinstance(low, int):  # one that float64 may not hold
        converted, first, half = above(low), 0.0, (high - low) / 2
    reaches, at_largest = max(abs(low), abs(high)) >= largest, 0
    if not half > 0:
        histogram[BINS // 2] = found.size
        return histogram.tolist(), found.size if reaches else 0
    for tile in tiles(blocks(), converted):
        values = finite(tile)
        if reaches:
            at_largest += int(np.count_nonzero(np.abs(values) >= largest))
        values *= 0.5
        values -= first
        values /= half
        values *= BINS
        bins = values.astype(np.intp)
        np.minimum(bins, BINS - 1, out=bins)
        histogram += np.bincount(bins, minlength=BINS)
    return histogram.tolist(), at_largest


class MomentStatistics(NamedTuple):
    """Of a first and a second moment: if |mu| > bound · nu anywhere, the sum of mu squared, the number of elements."""

    is_beyond: bool
    squares: float
    elements: int


def moment_statistics(first: Values, second: Values, bound: float) -> MomentStatistics:
    """What tells Adam's relatives apart, of two arrays alike; one element beyond the bound is enough."""
    import numpy as np

    signed, moments = first.reshape(-1), second.reshape(-1)
    is_beyond, squares = False, 0.0
    for start in range(0, signed.size, TILE_ELEMENTS):
        tile = slice(start, start + TILE_ELEMENTS)
        size = np.abs(real(signed[tile]))
        squares += float(np.square(size).sum())
        if not is_beyond:
            is_beyond = bool((size > bound * np.abs(real(moments[tile]))).any())
    return MomentStatistics(is_beyond, squares, first.size)
