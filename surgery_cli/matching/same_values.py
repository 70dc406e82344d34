"""Families of two trees that hold the same, found by what they hold: none is held against all others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from surgery_cli.matching.contents import Holdings, can_be
from surgery_cli.matching.families import Family
from surgery_cli.matching.sums import Contents, total_of

_AT_ONCE: Final = 16
"""Of more families that hold one thing any pairs are as true as others; they come in the order of the trees."""

_Held: TypeAlias = dict[tuple[str, int], list[int]]
"""Families by their dtype in the new tree, and what they hold in it."""


def same_values(
    olds: Sequence[Family],
    news: Sequence[Family],
    holdings: Holdings,
    most_bytes: int | None = None,
) -> Iterator[tuple[int, int]]:
    """The places of each two families that hold the same, and tell something; the smallest are read first.

    ``most_bytes``: no more is read, as soon as two families were held against each other.
    """
    here, there = _by_size(olds), _by_size(news)
    shared = [size for size in here if size in there]
    was_held = False
    for size in sorted(shared, key=lambda size: olds[here[size][0]].spec.bytes):
        dtypes = {news[j].spec.dtype: news[j].spec for j in there[size]}
        ours: _Held = defaultdict(list)
        theirs: _Held = defaultdict(list)
        for n in range(max(len(here[size]), len(there[size]))):
            found: dict[tuple[int, int], None] = {}
            for i in here[size][n : n + 1]:
                for dtype, spec in dtypes.items():
                    if can_be(olds[i].spec, spec):
                        held = [holdings.of_old(path, dtype) for path in olds[i].members]
                        found |= {(i, j): None for j in _met(i, dtype, held, ours, theirs)}
            for j in there[size][n : n + 1]:
                held = [holdings.of_new(path) for path in news[j].members]
                dtype = news[j].spec.dtype
                found |= {(i, j): None for i in _met(j, dtype, held, theirs, ours)}
            yield from ((i, j) for i, j in found if holdings.agree(olds[i], news[j]))
            was_held = was_held or bool(ours and theirs)
            if was_held and most_bytes is not None and holdings.read_bytes > most_bytes:
                return


def _by_size(families: Sequence[Family]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for place, family in enumerate(families):
        found[family.size].append(place)
    return found


def _met(
    place: int, dtype: str, contents: Sequence[Contents], own: _Held, other: _Held
) -> Sequence[int]:
    """Note what a family holds, and which of the other side hold the same as far as sums tell."""
    if not all(one.is_telling for one in contents):
        return ()
    key = dtype, total_of(contents)
    own[key].append(place)
    return other.get(key, ())[-_AT_ONCE:]
