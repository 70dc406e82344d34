"""What the values of a state ``{count, mu, nu}`` rule out, all its leaves taken together. They prove nothing."""

from __future__ import annotations

from typing import Final

import msgspec

MOST_BYTES: Final = 64 << 20
"""So much is read of all states together, the smallest leaves first."""

ADAMAX_BOUND: Final = 3.0
"""Adamax keeps |mu| below (1 - b1) / (1 - b1/b2) times nu, which is less than this wherever b1 < b2."""

_ADOPT_RMS: Final = 0.02
"""The mu of adopt and LaProp averages normalised gradients: mostly larger than this, in the root mean square."""


_ENOUGH_LEAVES: Final = 48
_ENOUGH_ELEMENTS: Final = 2 << 20
"""So many leaves, or elements, with a gradient in them, after which the next of hundreds would tell no more."""


class Evidence(msgspec.Struct):
    """What was seen of the leaves of one state; ``moved`` of them, of ``elements`` in all, have seen a gradient."""

    exceeds_adamax: bool = False
    largest_rms: float = 0.0
    moved: int = 0
    elements: int = 0

    def see(self, exceeds_adamax: bool, rms: float, elements: int) -> None:
        """Take one more pair of leaves into account: |mu| > 3 nu anywhere, and the root mean square of mu."""
        self.exceeds_adamax |= exceeds_adamax
        self.largest_rms = max(self.largest_rms, rms)
        if rms > 0:
            self.moved += 1
            self.elements += elements

    @property
    def is_enough(self) -> bool:
        """True if no other leaf can change what the state is taken for, or is likely to."""
        is_out = self.largest_rms >= _ADOPT_RMS
        has_seen = self.moved >= _ENOUGH_LEAVES or self.elements >= _ENOUGH_ELEMENTS
        return is_out or (self.exceeds_adamax and has_seen)

    @property
    def is_like_adam(self) -> bool:
        """True if Adam's family is what it is taken for: adamax is ruled out, and adopt not likely.

        One leaf is enough to rule out adamax, for the kind belongs to the state; a leaf without gradients, or with NaN
        in it, tells nothing.

        >>> Evidence(True, 1e-3).is_like_adam, Evidence(True, 0.2).is_like_adam, Evidence().is_like_adam
        (True, False, False)
        """
        return self.exceeds_adamax and 0 < self.largest_rms < _ADOPT_RMS
