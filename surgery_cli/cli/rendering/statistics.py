"""A leaf's statistics in one line: numbers, a sparkline, and what should worry the reader."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from surgery_cli.console.page import Cell
from surgery_cli.proof.soundness import not_finite
from surgery_cli.proof.statistics import LeafStatistics
from surgery_cli.reports import LeafRow
from surgery_cli.words.ills import UNCOUNTED
from surgery_cli.words.quantities import number_text

_BARS: Final = "▁▂▃▄▅▆▇█"
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


def cells(rows: Sequence[LeafRow]) -> list[Cell]:
    """The columns of `HEADINGS` for all values of one leaf, or of several that are alike in what is wrong with them."""
    found = of_all(rows)
    if found is None:
        return [Cell("") for _ in HEADINGS]
    numbers = (found.mean, found.std, found.min, found.max, found.norm)
    return [
        *(Cell(number_text(number), right=True) for number in numbers),
        Cell(f"{found.zeros:,}", right=True),
        Cell(sparkline(found.histogram), "faint"),
        Cell(", ".join(_warnings(rows[0], found)), "bad" if found.non_finite else "doubtful"),
    ]


def of_all(rows: Sequence[LeafRow]) -> LeafStatistics | None:
    """The statistics of all values of several leaves, without a histogram: bins of different leaves do not add up."""
    each = [(math.prod(row.shape), row.statistics) for row in rows if row.statistics is not None]
    if len(each) < 2:
        return each[0][1] if each else None
    parts = [(size - one.non_finite, one) for size, one in each if size > one.non_finite]
    count = sum(size for size, _ in parts) or math.nan
    mean = sum(size * one.mean for size, one in parts) / count
    spread = (
        sum(
            size * (one.std * one.std + (one.mean - mean) * (one.mean - mean))
            for size, one in parts
        )
        / count
    )
    return LeafStatistics(
        mean=mean,
        std=math.sqrt(spread),
        min=min((one.min for _, one in parts), default=math.nan),
        max=max((one.max for _, one in parts), default=math.nan),
        norm=math.hypot(*(one.norm for _, one in parts)),
        zeros=sum(one.zeros for _, one in each),
        non_finite=sum(one.non_finite for _, one in each),
        nan=sum(one.nan for _, one in each),
        at_largest=sum(one.at_largest for _, one in each),
        histogram=[],
    )


def _warnings(row: LeafRow, found: LeafStatistics) -> list[str]:
    """What is visibly wrong, in words."""
    return [*not_finite(found), *(said for said in row.bad if said in UNCOUNTED)]


def marks(row: LeafRow, found: LeafStatistics) -> list[str]:
    """What is visibly wrong with a leaf's values, without how often: leaves of the same marks are shown together."""
    counts = {"NaN": found.nan, "infinite": found.non_finite - found.nan}
    return [
        *(kind for kind, count in counts.items() if count),
        *(said for said in row.bad if said in UNCOUNTED),
    ]
