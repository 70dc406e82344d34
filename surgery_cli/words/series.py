"""Texts that differ in numbers alone, said once: `layers_{0..11}/w`."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from math import prod
from typing import Any, Final, NamedTuple, TypeVar

T = TypeVar("T")

_NUMBER: Final = re.compile(r"(?<![%0-9])(?<!%[A-F])([0-9]+)")
"""Digits, but for those of an escape as `%2F`."""


def folded(texts: Iterable[str]) -> list[str]:
    """The same texts in their order, those of one series as one.

    >>> folded(["head/w", "layers_0/w", "layers_1/w", "layers_2/w", "layers_10/w"])
    ['head/w', 'layers_{0..2,10}/w']
    >>> folded(["a/0/b/0", "a/1/b/1"]), folded(["a/0/b/0", "a/0/b/1", "a/1/b/0"])
    (['a/{0,1}/b/{0,1}'], ['a/0/b/0', 'a/0/b/1', 'a/1/b/0'])
    """
    series: dict[tuple[str, ...], dict[tuple[str, ...], None]] = {}
    for text in texts:
        parts = _NUMBER.split(text)
        series.setdefault(tuple(parts[::2]), {})[tuple(parts[1::2])] = None
    return [text for words, rows in series.items() for text in _joined(words, list(rows))]


def _joined(words: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Each row of numbers between the words, or all rows as one, where nothing else would be meant by that."""
    columns = list(zip(*rows, strict=True))
    varying = [column for column in columns if len(set(column)) > 1]
    is_every_pair = prod(len(set(column)) for column in varying) == len(rows)
    if not is_every_pair and any(column != varying[0] for column in varying):
        return [_filled(words, row) for row in rows]
    return [_filled(words, [_range(list(dict.fromkeys(column))) for column in columns])]


def _filled(words: Sequence[str], numbers: Sequence[str]) -> str:
    return "".join(word + number for word, number in zip(words, (*numbers, ""), strict=True))


def _range(numbers: Sequence[str]) -> str:
    """The numbers as a choice, three and more in a row as a range."""
    if len(numbers) == 1:
        return numbers[0]
    width = min(map(len, numbers))
    if any(f"{int(number):0{width}}" != number for number in numbers):  # `007` and `8`
        return f"{{{','.join(numbers)}}}"
    runs: list[list[str]] = []
    for number in sorted(numbers, key=int):
        # the ends of a range with zeros in front say how many digits all of its numbers have
        is_next = runs and int(number) == int(runs[-1][-1]) + 1
        if is_next and (width == 1 or runs[-1][0][0] != "0" or len(number) == width):
            runs[-1].append(number)
        else:
            runs.append([number])
    shown = [f"{run[0]}..{run[-1]}" if len(run) > 2 else ",".join(run) for run in runs]
    return f"{{{','.join(shown)}}}"


class Series(NamedTuple):
    """Members of which the same is said, whose names differ in numbers alone: `layers_{0..11}/w`."""

    name: str
    members: list[Any]


def in_series(
    members: Iterable[T], named: Callable[[T], str], said: Callable[[T], Hashable] = lambda _: None
) -> list[Series]:
    """The members in the order of their series; each stands in one, and what a series' name means are its members.

    >>> [(one.name, len(one.members)) for one in in_series(["a/0/b/0", "c", "a/0/b/1", "a/1/b/0"], str)]
    [('a/0/b/{0,1}', 2), ('a/1/b/0', 1), ('c', 1)]
    """
    together: dict[tuple[tuple[str, ...], Hashable], dict[_Numbers, list[T]]] = {}
    for member in members:
        parts = _NUMBER.split(named(member))
        rows = together.setdefault((tuple(parts[::2]), said(member)), {})
        rows.setdefault(tuple(parts[1::2]), []).append(member)
    return [
        Series(_filled(words, list(map(_range, places))), [m for row in rows for m in found[row]])
        for (words, _), found in together.items()
        for places, rows in _blocks(list(found))
    ]


_Numbers = tuple[str, ...]
"""The numbers in a name, in order."""


def _blocks(rows: list[_Numbers]) -> list[tuple[tuple[_Numbers, ...], list[_Numbers]]]:
    """The rows as blocks, in which every number of each place stands with every one of the others."""
    blocks: list[tuple[tuple[_Numbers, ...], list[_Numbers]]]
    blocks = [(tuple((number,) for number in row), [row]) for row in rows]
    for place in reversed(range(len(rows[0]))):
        merged: dict[tuple[_Numbers, ...], tuple[list[str], list[_Numbers]]] = {}
        for places, members in blocks:
            others = (*places[:place], (), *places[place + 1 :])
            own, together = merged.setdefault(others, ([], []))
            own += places[place]
            together += members
        blocks = [
            ((*others[:place], tuple(own), *others[place + 1 :]), members)
            for others, (own, members) in merged.items()
        ]
    return blocks
