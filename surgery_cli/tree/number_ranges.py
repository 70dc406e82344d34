"""Ranges of numbers in patterns: `{0..11}`, `{00..11}`, `{0..10..2}`."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from surgery_cli.errors import PlanError
from surgery_cli.inputs.limits import RANGE_STEPS

_RANGE: Final = re.compile(r"([0-9]+)\.\.([0-9]+)(?:\.\.([0-9]+))?")
_MOST_DIGITS: Final = 18


class NumberRange(NamedTuple):
    """The numbers from ``first`` to ``last``, either way, written with at least ``width`` digits.

    >>> read_range("8..11").texts()
    ['8', '9', '10', '11']
    """

    first: int
    last: int
    step: int
    width: int

    @property
    def numbers(self) -> range:
        """The numbers in the order in which they are written."""
        if self.first <= self.last:
            return range(self.first, self.last + 1, self.step)
        return range(self.first, self.last - 1, -self.step)

    def text(self, number: int) -> str:
        """A number as it stands in a path."""
        return f"{number:0{self.width}d}"

    def texts(self) -> list[str]:
        """All of them, which may be very many."""
        return [self.text(number) for number in self.numbers]

    def padded(self, width: int) -> str:
        """The range, with braces, of numbers of so many digits."""
        step = f"..{self.step}" if self.step > 1 else ""
        return f"{{{self.first:0{width}d}..{self.last:0{width}d}{step}}}"

    @property
    def lengths(self) -> int:
        """How many different numbers of digits there are."""
        return len(str(max(self.first, self.last))) - len(str(min(self.first, self.last))) + 1


def read_range(text: str) -> NumberRange | None:
    """The range that stands between braces; None if it is none.

    Raises:
        PlanError: its numbers have too many digits, its step is 0, or it has too many steps.
    """
    found = _RANGE.fullmatch(text)
    if found is None:
        return None
    first, last, step = found[1], found[2], found[3] or "1"
    if max(map(len, (first, last, step))) > _MOST_DIGITS:
        raise PlanError(
            f"`{{{text}}}` is no range of numbers of layers",
            why=f"its numbers may have {_MOST_DIGITS} digits at most",
            fix="write smaller ones",
        )
    is_padded = any(len(end) > 1 and end.startswith("0") for end in (first, last))
    width = max(len(first), len(last)) if is_padded else 0
    range_ = NumberRange(int(first), int(last), int(step), width)
    if range_.step == 0:
        raise PlanError(
            f"`{{{text}}}` has a step of 0", fix=f"write `{{{first}..{last}}}` for every number"
        )
    count = len(range_.numbers)
    if range_.step > 1 and count > RANGE_STEPS.most:
        raise PlanError(
            f"`{{{text}}}` names {count:,} numbers",
            why=f"a range with a step names at most {RANGE_STEPS.most:,}, the limit `range-steps`",
            fix=f"write `{{{first}..{last}}}` for every number, or name fewer",
        )
    return range_
