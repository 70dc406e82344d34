"""What ranges of numbers match, as parts of a glob."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

from surgery_cli.tree.glob_parts import Choice, One, Part, Text
from surgery_cli.tree.number_ranges import NumberRange


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
