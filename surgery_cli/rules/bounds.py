"""Bounds of numbers: `0.1..100`, `..100`, `0.1..`, or one number for just that."""

from __future__ import annotations

import math
import re
from typing import Annotated, Final, NamedTuple, TypeAlias

from msgspec import Meta

from surgery_cli.errors import PlanError
from surgery_cli.words.advice import FieldName, worded

_NUMBER: Final = r"[-+]?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_BOUNDS: Final = re.compile(rf"({_NUMBER})?\.\.({_NUMBER})?")

_WHOLE: Final = re.compile(r"[-+]?[0-9]{1,300}")
"""What is kept as an integer: no more digits than a float64 has a place for."""

BoundsText: TypeAlias = int | float | Annotated[str, Meta(examples=["0.1..100"])]
"""As a plan says it."""


class Bounds(NamedTuple):
    """From ``low`` to ``high``, both of them inside. What is written as an integer is one, however large.

    >>> str(Bounds.of("..100", "norm")), 100.0 in Bounds.of("..100", "norm"), 0.5 in Bounds.of(0, "zeros")
    ('..100', True, False)
    """

    low: int | float = -math.inf
    high: int | float = math.inf

    @classmethod
    def of(cls, given: float | str, field: str) -> Bounds:
        """Raises PlanError: they are none, or hold no number."""
        if isinstance(given, int | float):
            try:
                float(given)
            except OverflowError:
                raise PlanError(
                    worded("{} is larger than any number here", FieldName(field)),
                    why="it is beyond what a float64 holds",
                    fix="write a smaller one",
                    field=field,
                ) from None
            bounds = cls(given, given)
        else:
            found = _BOUNDS.fullmatch(str(given).replace(" ", ""))
            if found is None or not any(found.groups()):
                raise PlanError(
                    worded("{} takes bounds, not '{}'", FieldName(field), given),
                    why="they are the least and the largest number, of which one may be left out",
                    fix="write `0.1..100`, `..100` or `0.1..`, or one number alone",
                    field=field,
                )
            bounds = cls(
                *(
                    _number(text) if text else end
                    for text, end in zip(found.groups(), cls(), strict=True)
                )
            )
        if not bounds.low <= bounds.high:
            raise PlanError(
                worded("no number lies within {}", FieldName(field, str(given))),
                fix="write the smaller one first",
                field=field,
            )
        return bounds

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int | float) and self.low <= number <= self.high

    def __str__(self) -> str:
        if self.low == self.high:
            return _text(self.low)
        return "..".join(map(_text, self))


def _number(text: str) -> int | float:
    return int(text) if _WHOLE.fullmatch(text) else float(text)


def _text(end: float) -> str:
    """A number as it is, not rounded; '' for what bounds nothing."""
    if isinstance(end, int):
        return str(end)
    if not math.isfinite(end):
        return ""
    short = f"{end:.15g}"
    return short if float(short) == end else repr(end)
