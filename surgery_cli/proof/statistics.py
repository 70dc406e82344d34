"""Statistics of a leaf's values, streamed: two passes over blocks, whatever the leaf's size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    import numpy as np

    Values = np.ndarray[Any, Any]

BINS = 16
TILE_ELEMENTS = 1 << 15


class LeafStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Of a leaf's values: ``mean`` to ``norm`` (Frobenius) over the finite ones, counts of zeros and of the others.

    ``histogram`` has equal bins from ``min`` to ``max``.
    """

    mean: float
    std: float
    min: float
    max: float
    norm: float
    zeros: int
    non_finite: int
    histogram: list[int]


def statistics(blocks: Callable[[], Iterable[Values]]) -> LeafStatistics:
    """Statistics of a real or complex leaf (complex values by their magnitude); ``blocks`` is called twice.

    ``std`` and ``norm`` are infinite where squares are larger than the largest float64.
    """
    import numpy as np

    with np.errstate(over="ignore"):
        return _statistics(blocks)


def _statistics(blocks: Callable[[], Iterable[Values]]) -> LeafStatistics:
    import numpy as np

    count = zeros = bad = 0
    mean = spread = 0.0
    low, high = np.inf, -np.inf
    for tile in _tiles(blocks()):
        values = _finite(tile)
        bad += tile.size - values.size
        if not values.size:
            continue
        zeros += int(np.count_nonzero(values == 0))
        low, high = min(low, float(values.min())), max(high, float(values.max()))
        # Chan, Golub, LeVeque (1979): joining the moments of two parts
        part_mean = float(values.mean())
        if not np.isfinite(part_mean):  # their sum is larger than the largest float64
            part_mean = float((values / values.size).sum())
        delta = part_mean - mean
        total = count + values.size
        values -= part_mean
        np.square(values, out=values)
        spread += float(values.sum())
        if count:
            spread += delta * delta * count * values.size / total
        mean += delta * (values.size / total)
        count = total
    if not count:
        nan = float("nan")
        return LeafStatistics(
            mean=nan, std=nan, min=nan, max=nan, norm=0.0, zeros=zeros, non_finite=bad, histogram=[]
        )
    histogram = np.zeros(BINS, np.int64)
    half = high / 2 - low / 2  # a range may be wider than the largest float64
    if half > 0:
        for tile in _tiles(blocks()):
            values = _finite(tile)
            values *= 0.5
            values -= low / 2
            values /= half
            values *= BINS
            bins = values.astype(np.intp)
            np.minimum(bins, BINS - 1, out=bins)
            histogram += np.bincount(bins, minlength=BINS)
    else:
        histogram[BINS // 2] = count
    return LeafStatistics(
        mean=mean,
        std=float(np.sqrt(spread / count)),
        min=low,
        max=high,
        norm=float(np.sqrt(spread + count * (mean * mean))),
        zeros=zeros,
        non_finite=bad,
        histogram=[int(n) for n in histogram],
    )


def _tiles(blocks: Iterable[Values]) -> Iterator[Values]:
    """Copies of the values of all blocks in float64, in parts that a core's cache holds with their temporaries."""
    for block in blocks:
        flat = block.reshape(-1)
        for start in range(0, flat.size, TILE_ELEMENTS):
            yield _real(flat[start : start + TILE_ELEMENTS])


def _finite(values: Values) -> Values:
    """The finite ones of some values; the smallest and the largest tell whether that is all of them."""
    import numpy as np

    if np.isfinite(values.min()) and np.isfinite(values.max()):
        return values
    return values[np.isfinite(values)]


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
        size = np.abs(_real(signed[tile]))
        squares += float(np.square(size).sum())
        if not is_beyond:
            is_beyond = bool((size > bound * np.abs(_real(moments[tile]))).any())
    return MomentStatistics(is_beyond, squares, first.size)


def _real(block: Values) -> Values:
    import numpy as np

    if block.dtype.kind == "c":
        return np.abs(block).astype(np.float64).reshape(-1)
    return block.astype(np.float64).reshape(-1)
