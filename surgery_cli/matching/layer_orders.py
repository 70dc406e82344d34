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
    is_stacked = any(way.stack is not None for way in ways)
    whole, parts = (new, old) if is_stacked else (old, new)
    axes = [way.stack if is_stacked else way.unstack for way in ways]
    for axis in dict.fromkeys(axis for axis in axes if axis is not None):
        held = (
            holdings.of_old(path, dtype) if is_stacked else holdings.of_new(path)
            for path in parts.members
        )
        places = holdings.totals_along(whole, axis, dtype, is_old=not is_stacked)
        order = _order([one.total for one in held], places)
        if order is not None:
            numbered = parts.in_order(order)
            pair = (numbered, whole) if is_stacked else (whole, numbered)
            own = [way for way, along in zip(ways, axes, strict=True) if along == axis]
            fitting = holdings.fitting(*pair, own)
            if fitting:
                return *pair, fitting[0]
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
