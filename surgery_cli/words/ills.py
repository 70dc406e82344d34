"""What may be wrong with the values of a leaf: each word, and from where on it is said."""

from __future__ import annotations

from typing import Final, NamedTuple

EXPLODED: Final = 1e4
"""Trained weights lie orders of magnitude below this; scales of frequencies, a vector, do not."""

EXPLODED_VECTOR: Final = 1e8

SATURATED: Final = 0.25
"""Where a scale is chosen for each block of values, as small as 8, fewer of them are the largest."""


class Ill(NamedTuple):
    """Something that is wrong with the values of a leaf."""

    name: str
    said: str
    """How it is said of a leaf; '' where it is counted."""
    meaning: str
    """What must be so that it is said."""


DEAD: Final = Ill("dead", "dead: all zeros", "all zeros in a param of floats with 2 or more axes")
BLOWN_UP: Final = Ill(
    "exploded",
    "exploded",
    f"a float of {EXPLODED:,.0f} or more in size in a leaf with 2 or more axes, of {EXPLODED_VECTOR:,.0f} in a vector",
)
AT_ITS_ENDS: Final = Ill(
    "saturated",
    "saturated",
    f"{SATURATED:.0%} or more of the values as large as their dtype holds, in floats, int8 and int4",
)
ILLS: Final = (
    Ill("NaN", "", "any"),
    Ill("infinities", "", "any, but for those with which optimizers start"),
    DEAD,
    BLOWN_UP,
    AT_ITS_ENDS,
)
"""All that `inspect --only bad` looks for; the last three not in the state of an optimizer, nor in single numbers."""

NAMES: Final = ", ".join(ill.name for ill in ILLS)
UNCOUNTED: Final = frozenset(ill.said for ill in ILLS if ill.said)
