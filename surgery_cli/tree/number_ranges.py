"""Ranges of numbers in patterns: `{0..11}`, `{00..11}`, `{0..10..2}`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final, NamedTuple

from surgery_cli.errors import PlanError
from surgery_cli.inputs.limits import RANGE_STEPS
from surgery_cli.tree.glob_parts import Choice, One, Part, Text

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


def _between(low: str, high: str) -> list[list[Part]]:
    """The parts of all numbers from one to another, which have as many digits."""
    if not low:
        return [[]]
    if low[0] == high[0]:
        return [[Text(low[0]), *rest] for rest in _between(low[1:], high[1:])]
    others = len(low) - 1
    any_ = [One("[0-9]")] * others
    first, last = int(low[0]), int(high[0])
    found: list[list[Part]] = []
    if low[1:] != "0" * others:
        found += [[Text(low[0]), *rest] for rest in _between(low[1:], "9" * others)]
        first += 1
    is_cut = high[1:] != "9" * others
    if first <= last - is_cut:
        found.append([One(f"[{first}-{last - is_cut}]"), *any_])
    if is_cut:
        found += [[Text(high[0]), *rest] for rest in _between("0" * others, high[1:])]
    return found


def _written_out(texts: Sequence[str]) -> list[list[Part]]:
    """The parts of sorted numbers, with what they begin with in common, so that no text is tried against all."""
    found: list[list[Part]] = []
    for digit, rests in _by_first(texts):
        is_end = rests[0] == ""
        below = _written_out(rests[is_end:]) if len(rests) > is_end else []
        alternatives = [*below, []] if is_end else below
        found.append(
            [Text(digit), *alternatives[0]]
            if len(alternatives) == 1
            else [Text(digit), Choice(alternatives, 1)]
        )
    return found


def _by_first(texts: Iterable[str]) -> list[tuple[str, list[str]]]:
    groups: dict[str, list[str]] = {}
    for text in texts:
        groups.setdefault(text[0], []).append(text[1:])
    return list(groups.items())


@cache
def numbers_part(numbers: NumberRange) -> Choice:
    """The part of a glob that matches the numbers of a range, longer ones first."""
    if numbers.step > 1:
        return Choice(_written_out(sorted(numbers.texts())), numbers.lengths)
    low, high = sorted((numbers.first, numbers.last))
    found: list[list[Part]] = []
    for size in range(max(len(str(high)), numbers.width), 0, -1):
        least = 0 if size in (1, numbers.width) else 10 ** (size - 1)
        from_, to = max(low, least), min(high, 10**size - 1)
        if from_ <= to and size >= numbers.width:
            found += _between(f"{from_:0{size}d}", f"{to:0{size}d}")
    return Choice(found, numbers.lengths)
