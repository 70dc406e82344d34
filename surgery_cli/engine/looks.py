"""What is seen of values, in one pass: moments in float64, what is not finite, what differs from another leaf."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from surgery_cli.draft.kernel import Window
from surgery_cli.draft.leaf_digest import sha256_of_text
from surgery_cli.draft.seen import (
    BlockDigests,
    Differing,
    Moments,
    NonFinite,
    Seen,
    Sizes,
    Squares,
    exponent_of,
)
from surgery_cli.engine.bounded_reads import met_by
from surgery_cli.engine.digests import block_digest
from surgery_cli.engine.finite import count_non_finite
from surgery_cli.engine.grid import relative, start_of
from surgery_cli.engine.reading import Values

TILE_ELEMENTS = 1 << 15


def moments_of(parts: Iterable[Values]) -> Moments:
    """The moments of values that come in parts."""
    found = Moments()
    for tile in tiles(parts, _exact):
        found = found.joined(_of_tile(tile) if tile.dtype == np.float64 else _of_integers(tile))
    return found


_HELD: Final = 1 << 53
"""Integers up to this size are what they are in float64."""


def _exact(block: Values) -> Values:
    """A copy of values that loses nothing: in float64, or as integers of 64 bits: [their number]."""
    is_wide = block.dtype.kind in "iu" and block.dtype.itemsize > 4
    return block.reshape(-1).copy() if is_wide else real(block)


def _of_integers(tile: Values) -> Moments:
    """Of integers that float64 may not hold: of how far they are from the smallest."""
    low, high = int(tile.min()), int(tile.max())
    if max(-low, high) <= _HELD:
        return _of_tile(tile.astype(np.float64))
    zeros = int(np.count_nonzero(tile == 0))
    found = _of_tile(above(low)(tile))
    return found._replace(low=low, high=high, zeros=zeros, origin=low)


def above(low: int) -> Callable[[Values], Values]:
    """Makes float64 of integers of 64 bits: of how far each is from the smallest, which no subtraction wraps."""

    def distances(block: Values) -> Values:
        bits = block.reshape(-1).astype(np.uint64)  # the difference modulo 2⁶⁴ is that of any signs
        return (bits - np.uint64(low % (1 << 64))).astype(np.float64)

    return distances


def _of_tile(tile: Values) -> Moments:
    """``tile`` may be written over."""
    values = finite(tile)
    bad = tile.size - values.size
    nan = int(np.count_nonzero(np.isnan(tile))) if bad else 0
    if not values.size:
        return Moments(non_finite=bad, nan=nan)
    zeros = int(np.count_nonzero(values == 0))
    low, high = float(values.min()), float(values.max())
    exponent = _scaled(values, max(-low, high))
    mean = float(values.mean())
    values -= mean
    # the mean is rounded, which tells where values are much closer to each other than to 0
    is_far = high / 2 - low / 2 < abs(math.ldexp(mean, exponent)) * _CLOSE
    rest = float(values.sum()) / values.size if is_far else 0.0
    np.square(values, out=values)
    spread = Squares(max(float(values.sum()) - values.size * rest * rest, 0.0), exponent)
    mean = math.ldexp(mean + rest, exponent)
    return Moments(values.size, mean, spread, low, high, zeros, bad, nan)


_CLOSE: Final = 2.0**-20
"""Beside the squared distances of values that lie further apart than this share of their mean, its rounding is lost."""


def _scaled(values: Values, largest: float) -> int:
    """Divide values up to ``largest`` in size by a power of two, so that their squares neither over- nor underflow."""
    exponent = exponent_of(largest)
    if exponent:
        np.ldexp(values, -exponent, out=values)
    return exponent


def tiles(
    parts: Iterable[Values], converted: Callable[[Values], Values] | None = None
) -> Iterator[Values]:
    """Copies of values in float64 (or ``converted``), in tiles that a core's cache holds with their temporaries.

    All but the last are equally long, however long the parts are: sums do not depend on how values were read.
    """
    converted = converted or real
    rest = np.empty(0)
    for values in parts:
        flat = values.reshape(-1)
        start = (TILE_ELEMENTS - rest.size) % TILE_ELEMENTS
        if rest.size:
            rest = np.concatenate([rest, converted(flat[:start])])
            if rest.size < TILE_ELEMENTS:
                continue
            yield rest
        full = start + (flat.size - start) // TILE_ELEMENTS * TILE_ELEMENTS
        for at in range(start, full, TILE_ELEMENTS):
            yield converted(flat[at : at + TILE_ELEMENTS])
        rest = converted(flat[full:])
        del values, flat  # or they would stay while the next part is read
    if rest.size:
        yield rest


def finite(values: Values) -> Values:
    """The finite ones of some values; the smallest and the largest tell whether that is all of them."""
    if np.isfinite(values.min()) and np.isfinite(values.max()):
        return values
    return values[np.isfinite(values)]


def real(block: Values) -> Values:
    """Values in float64, complex ones by their magnitude: [their number]."""
    # a magnitude may be larger than the largest float64, and damaged data hold signaling NaN
    with np.errstate(over="ignore", invalid="ignore"):
        size = np.abs(block) if block.dtype.kind == "c" else block
        return size.astype(np.float64).reshape(-1)


def differing(values: Values, other: Values) -> Differing:
    """How many values are not those of ``other``, which are as many; NaN equals NaN."""
    left, right = values.reshape(-1), other.reshape(-1)
    parts = (slice(at, at + TILE_ELEMENTS) for at in range(0, left.size, TILE_ELEMENTS))
    return Differing(sum(_count_differing(left[part], right[part]) for part in parts))


def _count_differing(values: Values, other: Values) -> int:
    if values.tobytes() == other.tobytes():
        return 0
    with np.errstate(invalid="ignore"):
        same = values == other
        if values.dtype.kind not in "biuOSU":
            same |= np.isnan(values) & np.isnan(other)
    return int(np.size(same) - np.count_nonzero(same))


def sizes_of(values: Values, other: Values) -> Sizes:
    """The sums of squares of values and of others."""
    return Sizes(squares(values), squares(other))


def squares(values: Values) -> Squares:
    """The sum of the squares of values."""
    found = Squares()
    for tile in tiles([values]):
        exponent = _scaled(tile, max(-float(tile.min()), float(tile.max())))
        found = found.joined(Squares(float(np.dot(tile, tile)), exponent))
    return found


def block_digests(values: Values, cut: tuple[tuple[int, ...], Window]) -> BlockDigests:
    """The digests of the blocks of a grid that make up the values, which stand at a place in the leaf."""
    grid, at = cut
    if values.dtype.kind in "OU":
        return BlockDigests(text=sha256_of_text(str(values)))
    digests = (
        (start_of(part), block_digest(values[relative(part, at)])) for part in met_by(at, grid)
    )
    return BlockDigests(grid, tuple(digests))


class Cut(NamedTuple):
    """Values are seen block by block of a ``grid``."""

    grid: tuple[int, ...]

    def block(self, window: Window) -> tuple[tuple[int, ...], Window]:
        """The grid, and where in the leaf values stand that have whole blocks of it."""
        return self.grid, window


LOOKS: Final[dict[type, Callable[[Values, Any], Seen]]] = {
    Moments: lambda values, _: moments_of([values]),
    NonFinite: lambda values, _: count_non_finite(values),
    Differing: differing,
    Sizes: sizes_of,
    BlockDigests: block_digests,
}
"""How each of them is seen in a block, and in that of another leaf with which it is compared; or by how it is cut."""
