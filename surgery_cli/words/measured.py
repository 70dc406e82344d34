"""Texts that differ in measured numbers alone, said once with the least and the most: `0.0776 to 0.2595`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_NUMBER: Final = re.compile(
    r"(?<![\w.,%/{\[-])-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[+-]?\d+)?(?![\w.,/:}\]…])"
)
"""A number that stands for itself: no part of a name, a shape, a bound as `0.1..100`, or a digest."""


_RANGE: Final = re.compile(r"\d to -?\d")


def numberless(text: str) -> str:
    """The text with a mark in the place of every measured number; names, shapes and bounds stay.

    >>> numberless("12 of 1,200 values differ"), numberless("1e-05"), numberless("norm 0..0.5")
    ('# of # values differ', '#', 'norm 0..0.5')
    """
    return _NUMBER.sub("#", text)


def spanned(texts: Sequence[str]) -> list[str]:
    """The same texts, in each of which a number that differs says from where to where it goes in all of them.

    >>> spanned(["`0.2595`", "`0.08469`", "`0.2338`"])[0], spanned(["3 of 10 differ", "7 of 10 differ"])[1]
    ('`0.08469 to 0.2595`', '3 to 7 of 10 differ')
    """
    numbers = [_NUMBER.findall(text) for text in texts]
    if len({len(row) for row in numbers}) > 1 or any(map(_RANGE.search, texts)):
        return list(texts)
    spans = [_span(sorted(column, key=_value)) for column in zip(*numbers, strict=True)]

    def with_spans(text: str) -> str:
        rest = iter(spans)
        return _NUMBER.sub(lambda _: next(rest), text)

    return [with_spans(text) for text in texts]


def _span(numbers: Sequence[str]) -> str:
    least, most = numbers[0], numbers[-1]
    return least if _value(least) == _value(most) else f"{least} to {most}"


def _value(text: str) -> float:
    return float(text.replace(",", ""))
