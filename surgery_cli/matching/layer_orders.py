"""Layers that are stacked in another order than their numbers have: which is which place of the axis, by values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from surgery_cli.matching.contents import Holdings
from surgery_cli.matching.families import Family
from surgery_cli.matching.forms import Form


def in_order(
    old: Family, new: Family, ways: Sequence[Form], holdings: Holdings
) -> tuple[Family, Family, Form] | None:
    """The families, the numbered one in the order of the other's places, and the form in which they are the same."""
    dtype = new.spec.dtype
    for axis in dict.fromkeys(way.stack for way in ways if way.stack is not None):
        order = _order(
            [holdings.of_old(path, dtype).total for path in old.members],
            holdings.totals_along(new, axis, dtype, is_old=False),
        )
        if order is not None:
            numbered = old.in_order(order)
            fitting = holdings.fitting(numbered, new, [way for way in ways if way.stack == axis])
            if fitting:
                return numbered, new, fitting[0]
    for axis in dict.fromkeys(way.unstack for way in ways if way.unstack is not None):
        order = _order(
            [holdings.of_new(path).total for path in new.members],
            holdings.totals_along(old, axis, dtype, is_old=True),
        )
        if order is not None:
            numbered = new.in_order(order)
            fitting = holdings.fitting(old, numbered, [way for way in ways if way.unstack == axis])
            if fitting:
                return old, numbered, fitting[0]
    return None


def _order(members: Sequence[int], places: Sequence[int]) -> list[int] | None:
    """Which member stands at each place; None if they do not hold the same.

    >>> _order([5, 6, 7], [7, 5, 6]), _order([5, 6], [5, 5])
    ([2, 0, 1], None)
    """
    left: dict[int, list[int]] = defaultdict(list)
    for n, total in enumerate(members):
        left[total].append(n)
    if len(members) != len(places) or sorted(members) != sorted(places):
        return None
    return [left[total].pop(0) for total in places]
