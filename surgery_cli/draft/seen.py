"""What may be seen of the values of a leaf, block by block, and joined."""

from __future__ import annotations

import math
from typing import Final, NamedTuple, TypeAlias


class NonFinite(NamedTuple):
    """How many values are no numbers, and how many are infinite."""

    nan: int = 0
    infinite: int = 0

    def __bool__(self) -> bool:
        return bool(self.nan or self.infinite)

    def joined(self, other: NonFinite) -> NonFinite:
        """Of the values of both."""
        return NonFinite(self.nan + other.nan, self.infinite + other.infinite)


class Differing(NamedTuple):
    """How many values are not those of another leaf."""

    values: int

    def joined(self, other: Differing) -> Differing:
        """Of the values of both."""
        return Differing(self.values + other.values)


class Squares(NamedTuple):
    """A sum of squares, ``total`` times four to the power of ``exponent``: squares of any float64 have a place in it.

    Sizes whose squares float64 holds have the exponent 0.
    """

    total: float = 0.0
    exponent: int = 0

    @classmethod
    def of(cls, value: float, times: float = 1.0) -> Squares:
        """The square of a number, so many times."""
        exponent = exponent_of(abs(value))
        scaled = math.ldexp(value, -exponent)
        return cls(scaled * scaled * times, exponent)

    def joined(self, other: Squares) -> Squares:
        """Of the values of both."""
        if self.exponent == other.exponent or not other.total:
            return Squares(self.total + other.total, self.exponent)
        if not self.total:
            return other
        low, high = sorted((self, other), key=lambda one: one.exponent)
        lowered = math.ldexp(low.total, 2 * (low.exponent - high.exponent))
        return Squares(high.total + lowered, high.exponent)

    def root(self, of: float = 1.0) -> float:
        """The root of the sum divided by ``of``; infinite where it is larger than the largest float64."""
        return _scaled(math.sqrt(self.total / of), self.exponent)


def _scaled(value: float, exponent: int) -> float:
    """A number times a power of two; infinite where that is larger than the largest float64."""
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return math.inf


_SAFE_EXPONENT: Final = 400
"""Sizes from 2⁻⁴⁰⁰ to 2⁴⁰⁰ are squared and summed as they are: neither that, nor how far they are apart, is lost."""


def exponent_of(largest: float) -> int:
    """By which power of two sizes up to ``largest`` are divided before they are squared; 0 where they need not be."""
    if not largest or not math.isfinite(largest):
        return 0
    exponent = math.frexp(largest)[1]
    return exponent if abs(exponent) > _SAFE_EXPONENT else 0


class Sizes(NamedTuple):
    """The sums of squares of values, and of others that belong to them."""

    own: Squares = Squares()
    other: Squares = Squares()

    def joined(self, other: Sizes) -> Sizes:
        """Of the values of both."""
        return Sizes(self.own.joined(other.own), self.other.joined(other.other))

    @property
    def ratio(self) -> float:
        """How large the others are beside the values, by their Frobenius norms."""
        if not self.own.total:
            return math.inf if self.other.total else 0.0
        ratio = math.sqrt(self.other.total) / math.sqrt(self.own.total)
        return _scaled(ratio, self.other.exponent - self.own.exponent)


class BlockDigests(NamedTuple):
    """The SHA-256 of blocks of a ``grid``, each by where it begins; of a string the digest of its ``text`` instead."""

    grid: tuple[int, ...] = ()
    blocks: tuple[tuple[tuple[int, ...], bytes], ...] = ()
    text: str = ""

    def joined(self, other: BlockDigests) -> BlockDigests:
        """Of the values of both."""
        return BlockDigests(self.grid, (*self.blocks, *other.blocks))

    def in_c_order(self) -> list[bytes]:
        """The digests of the blocks, one after the other."""
        return [digest for _, digest in sorted((tuple(at), digest) for at, digest in self.blocks)]


class Moments(NamedTuple):
    """Of values (complex ones by their magnitude): mean and sum of squared distances to it, ends, and counts.

    All but the counts are of the finite ones. Ends that float64 may not hold are integers, and the ``mean`` of such
    values is how far it is from ``origin``, one of them.
    """

    size: int = 0
    mean: float = 0.0
    spread: Squares = Squares()
    low: int | float = math.inf
    high: int | float = -math.inf
    zeros: int = 0
    non_finite: int = 0
    nan: int = 0
    origin: int = 0

    def joined(self, other: Moments) -> Moments:
        """Of the values of both.

        Source: Chan, Golub, LeVeque (1979), on the moments of two parts.
        """
        if not self.size:
            bad, nan = self.non_finite + other.non_finite, self.nan + other.nan
            return other._replace(non_finite=bad, nan=nan)
        total = self.size + other.size
        mean, spread = self.mean, self.spread.joined(other.spread)
        if other.size:
            # half of the distance, as all of it may overflow
            half = other.mean / 2 - self.mean / 2 + (other.origin - self.origin) / 2
            share = other.size / total
            spread = spread.joined(Squares.of(half, 4 * self.size * share))
            mean += half * share + half * share
        return Moments(
            total,
            mean,
            spread,
            min(self.low, other.low),
            max(self.high, other.high),
            self.zeros + other.zeros,
            self.non_finite + other.non_finite,
            self.nan + other.nan,
            self.origin,
        )

    @property
    def center(self) -> float:
        """The mean, from 0."""
        return self.origin + self.mean

    @property
    def std(self) -> float:
        """Of all values as they are, no sample; NaN if there are none."""
        return self.spread.root(self.size) if self.size else math.nan

    @property
    def norm(self) -> float:
        """Frobenius."""
        return self.spread.joined(Squares.of(self.center, self.size)).root()


Seen: TypeAlias = Moments | NonFinite | Differing | Sizes | BlockDigests
