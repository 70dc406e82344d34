"""A leaf's statistics in one line: numbers, a sparkline, and what should worry the reader."""

from __future__ import annotations

import math
from typing import Final

from surgery_cli.console.page import Cell
from surgery_cli.proof.statistics import LeafStatistics
from surgery_cli.reports import LeafRow
from surgery_cli.words.quantities import counted, number_text

_BARS: Final = "▁▂▃▄▅▆▇█"
_EXPLODED: Final = 1e4
"""Trained weights and moments lie orders of magnitude below this."""

HEADINGS: Final = ("mean", "std", "min", "max", "norm", "zeros", "histogram", "")


def sparkline(counts: list[int]) -> str:
    """One bar for each bin, relative to the fullest; only an empty bin gets the lowest bar.

    >>> sparkline([0, 1, 50, 100])
    '▁▂▅█'
    """
    top = max(counts, default=0)
    if not top:
        return ""
    return "".join(_BARS[1 + round(6 * count / top)] if count else _BARS[0] for count in counts)


def cells(row: LeafRow) -> list[Cell]:
    """The columns of `HEADINGS` for one leaf."""
    found = row.statistics
    if found is None:
        return [Cell("") for _ in HEADINGS]
    numbers = (found.mean, found.std, found.min, found.max, found.norm)
    return [
        *(Cell(number_text(number), right=True) for number in numbers),
        Cell(f"{found.zeros:,}", right=True),
        Cell(sparkline(found.histogram), "faint"),
        Cell(", ".join(warnings(row, found)), "bad" if found.non_finite else "doubtful"),
    ]


def warnings(row: LeafRow, found: LeafStatistics) -> list[str]:
    """What is visibly wrong with a leaf's values; thresholds are for floating leaves only."""
    size = math.prod(row.shape)
    words = []
    if found.non_finite:
        words.append(f"{counted(found.non_finite, 'value')} not finite")
    if not row.dtype.startswith(("float", "bfloat")) or size < 2:
        return words
    if found.zeros == size:
        words.append("dead: all zeros")
    elif max(abs(found.min), abs(found.max)) >= _EXPLODED:
        words.append("exploded")
    elif _is_saturated(found):
        words.append("saturated")
    return words


def _is_saturated(found: LeafStatistics) -> bool:
    """True if most values lie at both ends of their range, and few between."""
    total = sum(found.histogram)
    if len(found.histogram) < 5 or not found.min < found.max:
        return False
    first, last = found.histogram[0], found.histogram[-1]
    return min(first, last) > 0.2 * total and first + last > 0.6 * total
