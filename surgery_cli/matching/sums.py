"""What a leaf holds, whatever the order of its elements: sums that tell leaves apart, and that add up."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final

import msgspec
import numpy as np

from surgery_cli.compute.numpy_dtypes import numpy_dtype
from surgery_cli.engine.reading import Values

FEW: Final = 4
"""So few elements may be equal by chance."""
_PART: Final = 1 << 18
"""Elements that are summed up at once."""
_SALT: Final = 0x9E3779B97F4A7C15


class Contents(msgspec.Struct, frozen=True):
    """What a leaf holds, whatever the order: a sum over its elements that tells, and whether they tell anything.

    Sums add up: that of stacked or joined leaves is the sum of theirs.
    """

    total: int
    is_telling: bool
    """False where all elements are one number, or few: other leaves may hold the same by chance."""


def total_of(contents: Iterable[Contents]) -> int:
    """What leaves hold together."""
    return sum(one.total for one in contents) & 0xFFFFFFFFFFFFFFFF


def as_dtype(values: Values, dtype: str) -> Values:
    """The values in a dtype, as a cast makes them."""
    wanted = numpy_dtype(dtype)
    if values.dtype == wanted:
        return values
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(wanted)


def contents_of(blocks: Iterable[Values], dtype: str) -> Contents:
    """What the blocks of a leaf hold, in that dtype."""
    total, count = 0, 0
    first: Any = None
    is_telling = False
    for block in blocks:
        flat = as_dtype(block, dtype).reshape(-1)
        for start in range(0, flat.size, _PART):
            bits = _bits(flat[start : start + _PART])
            count += bits.size
            first = bits[0] if first is None else first
            is_telling = is_telling or bool((bits != first).any())
            total += int(_mixed(bits).sum(dtype=np.uint64))
        del block, flat  # or they would stay while the next is read
    return Contents(total & 0xFFFFFFFFFFFFFFFF, is_telling and count > FEW)


def one_number(blocks: Iterable[Values]) -> float | None:
    """The finite number that all elements of the blocks are, bit by bit; None if there is none."""
    first: Any = None
    for block in blocks:
        flat = np.ascontiguousarray(block).reshape(-1)
        first = flat[:1] if first is None else first
        if (_bits(flat) != _bits(first)).any():
            return None
    number = None if first is None or first.dtype.kind == "c" else float(first[0])
    return number if number is not None and math.isfinite(number) else None


def _bits(values: Values) -> Values:
    """The elements as numbers of as many bits; of wider ones than 64, folded."""
    flat = np.ascontiguousarray(values)
    if flat.dtype.kind == "b" or flat.dtype.itemsize == 1:
        return flat.view(np.uint8).astype(np.uint64)
    size = flat.dtype.itemsize
    if size in (2, 4, 8):
        return flat.view(f"u{size}").astype(np.uint64)
    words = flat.view(np.uint64).reshape(flat.size, -1)
    return words[:, 0] * np.uint64(_SALT | 1) ^ words[:, 1]


def _mixed(bits: Values) -> Values:
    """Numbers such that sums of them tell.

    Source: splitmix64 (Steele, Lea and Flood, Fast splittable pseudorandom number generators, 2014).
    """
    with np.errstate(over="ignore"):
        z = bits + np.uint64(_SALT)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))
