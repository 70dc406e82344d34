"""What is visibly wrong with the values of a leaf, as its statistics show it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from surgery_cli.proof.statistics import LeafStatistics
from surgery_cli.tree.dtypes import FLOATS, is_floating
from surgery_cli.words.ills import AT_ITS_ENDS, BLOWN_UP, DEAD, EXPLODED, EXPLODED_VECTOR, SATURATED
from surgery_cli.words.quantities import counted


def not_finite(found: LeafStatistics, *, may_be_infinite: bool = False) -> list[str]:
    """NaN and infinities, counted."""
    infinite = 0 if may_be_infinite else found.non_finite - found.nan
    said = ((found.nan, "NaN", "NaN"), (infinite, "infinity", "infinities"))
    return [counted(*words) for words in said if words[0]]


def out_of_shape(
    shape: Sequence[int], dtype: str, found: LeafStatistics, *, is_param: bool
) -> list[str]:
    """What finite values should not be like in a leaf that is trained: dead, exploded, saturated."""
    size, is_float = math.prod(shape), is_floating(dtype)
    if size < 2:
        return []
    if found.at_largest >= SATURATED * size:
        return [AT_ITS_ENDS.said]
    is_matrix = len(shape) > 1
    if is_float and is_matrix and is_param and found.zeros == size:
        return [DEAD.said]
    limit = EXPLODED if is_matrix else EXPLODED_VECTOR
    return [BLOWN_UP.said] if is_float and max(abs(found.min), abs(found.max)) >= limit else []


def largest_told(dtype: str) -> float:
    """The magnitude from which values are counted that are the largest of their dtype; infinite if they are not.

    Of an int8 that is 127, which is the largest on both sides where numbers are scaled. Two bits have no others.
    """
    if is_floating(dtype):
        return FLOATS[dtype].largest
    return {"int8": 127.0, "int4": 7.0}.get(dtype, math.inf)
