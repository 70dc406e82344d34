"""What is visibly wrong with the values of a leaf, as its statistics show it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from surgery_cli.proof.statistics import LeafStatistics
from surgery_cli.tree.dtypes import is_floating
from surgery_cli.words.quantities import counted

_EXPLODED: Final = 1e4
"""Trained weights and moments lie orders of magnitude below this."""

_TELLING: Final = 32
"""Of fewer values it says nothing that most of them lie near the ends of their range."""


def not_finite(found: LeafStatistics, *, may_be_infinite: bool = False) -> list[str]:
    """NaN and infinities, counted."""
    infinite = 0 if may_be_infinite else found.non_finite - found.nan
    said = ((found.nan, "NaN", "NaN"), (infinite, "infinity", "infinities"))
    return [counted(*words) for words in said if words[0]]


def out_of_shape(shape: Sequence[int], dtype: str, found: LeafStatistics) -> list[str]:
    """What finite values should not be like in a leaf of floats that is trained: dead, exploded, saturated."""
    size = math.prod(shape)
    if not is_floating(dtype) or size < 2:
        return []
    if found.zeros == size:
        return ["dead: all zeros"]
    if max(abs(found.min), abs(found.max)) >= _EXPLODED:
        return ["exploded"]
    return ["saturated"] if _is_saturated(found) else []


def _is_saturated(found: LeafStatistics) -> bool:
    """True if most values lie at both ends of their range, and few between."""
    total = sum(found.histogram)
    if total < _TELLING or not found.min < found.max:
        return False
    first, last = found.histogram[0], found.histogram[-1]
    return min(first, last) > 0.2 * total and first + last > 0.6 * total
