"""What may be seen of the values of a leaf, block by block, and joined."""

from __future__ import annotations

import math
from typing import NamedTuple, TypeAlias


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


class Sizes(NamedTuple):
    """The sums of squares of values, and of others that belong to them."""

    own: float = 0.0
    other: float = 0.0

    def joined(self, other: Sizes) -> Sizes:
        """Of the values of both."""
        return Sizes(self.own + other.own, self.other + other.other)

    @property
    def ratio(self) -> float:
        """How large the others are beside the values, by their Frobenius norms."""
        if not self.own:
            return math.inf if self.other else 0.0
        return math.sqrt(self.other / self.own)


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

    All but the counts are of the finite ones.
    """

    size: int = 0
    mean: float = 0.0
    spread: float = 0.0
    low: float = math.inf
    high: float = -math.inf
    zeros: int = 0
    non_finite: int = 0
    nan: int = 0

    def joined(self, other: Moments) -> Moments:
        """Of the values of both.

        Source: Chan, Golub, LeVeque (1979), on the moments of two parts.
        """
        total = self.size + other.size
        mean, spread = self.mean, self.spread + other.spread
        if other.size:
            delta = other.mean - self.mean
            spread += delta * delta * self.size * other.size / total if self.size else 0.0
            mean += delta * (other.size / total)
        return Moments(
            total,
            mean,
            spread,
            min(self.low, other.low),
            max(self.high, other.high),
            self.zeros + other.zeros,
            self.non_finite + other.non_finite,
            self.nan + other.nan,
        )

    @property
    def std(self) -> float:
        """Of all values as they are, no sample; NaN if there are none."""
        return math.sqrt(self.spread / self.size) if self.size else math.nan

    @property
    def norm(self) -> float:
        """Frobenius."""
        return math.sqrt(self.spread + self.size * (self.mean * self.mean))


Seen: TypeAlias = Moments | NonFinite | Differing | Sizes | BlockDigests
