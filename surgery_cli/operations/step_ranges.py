"""Steps of a run by their numbers: `100..500`, `100,200,400`, `last:5`; what is named must be there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from itertools import islice, pairwise

from surgery_cli.errors import PlanError
from surgery_cli.words.advice import worded
from surgery_cli.words.lists import listed

PATTERN = r"^(\d+(\.\.\d+)?(,\d+(\.\.\d+)?)*|last:[1-9]\d{0,8})?$"
_LAST = "last:"
_SHOWN = 6


def named_steps(text: str, there: Collection[int], formats: Collection[str] = ()) -> list[int]:
    """The steps that are named, of those that are ``there``, by number; ``formats`` are those of their names.

    A range holds its ends and every step between them; a run that usually saves every so many steps has saved all of
    those. The last few are those of the highest numbers.

    >>> named_steps("100..300", [100, 200, 250, 300, 400, 500]), named_steps("1,3", [1, 2, 3])
    ([100, 200, 250, 300], [1, 3])
    >>> named_steps("last:2", [1, 5, 3])
    [3, 5]

    Raises:
        PlanError: a range is turned around, or some of the steps are not there; with those that are. Or steps named
            in several formats, each a run of its own, are not named one by one.
    """
    if len(formats) > 1 and not text.replace(",", "").isdecimal():
        raise PlanError(
            f"the steps of the run are named in {len(formats)} formats: {', '.join(formats)}",
            why=worded("{steps: {}} takes those of one run, and which one is not known", text),
            fix=worded("name each by its number: {steps: 100,200}"),
            field="steps",
        )
    if text.startswith(_LAST):
        return _last(int(text.removeprefix(_LAST)), there)
    found: set[int] = set()
    missing: list[int] = []
    absent = 0
    for first, last in ranges_in(text):
        inside = {number for number in there if first <= number <= last}
        found |= inside
        usual = _usual(first, last, there)
        due = len(usual) + (first not in usual) + (last not in usual and last != first)
        absent += due - len(inside & {first, last, *(n for n in inside if n in usual)})
        wanted = (n for n in (first, *usual, last) if n not in inside)
        missing += islice(dict.fromkeys(islice(wanted, _SHOWN + 2)), _SHOWN)
    if missing:
        raise _not_there(text, missing, absent, sorted(found), sorted(there))
    return sorted(found)


def ranges_in(text: str) -> list[tuple[int, int]]:
    """The ranges of steps that are named, each with its first and its last; none for the last few.

    Raises:
        PlanError: one is turned around.
    """
    found = []
    for part in filter(None, text.split(",")) if not text.startswith(_LAST) else ():
        first, last = int(part.partition("..")[0]), int(part.rpartition("..")[2])
        if first > last:
            raise PlanError(
                f"the range {part} is turned around",
                why="it goes from the first step to the last",
                fix=worded("write {steps: {}..{}}", last, first),
                field="steps",
            )
        found.append((first, last))
    return found


def _last(count: int, there: Collection[int]) -> list[int]:
    if count > len(there):
        raise PlanError(
            f"the run has no {count:,} steps",
            why=f"it has {len(there):,}: {listed(sorted(there), _SHOWN)}",
            fix=worded("write {steps: last:{}}", len(there)),
            field="steps",
        )
    return sorted(there)[-count:]


def _usual(first: int, last: int, there: Collection[int]) -> range:
    """The steps from ``first`` to ``last`` that the run saves, by the distance at which it mostly does."""
    numbers = sorted(there)
    distances = Counter(b - a for a, b in pairwise(numbers))
    if not distances:
        return range(0)
    every = max(distances, key=lambda distance: (distances[distance], -distance))
    phase = Counter(number % every for number in numbers).most_common(1)[0][0]
    return range(first + (phase - first) % every, last + 1, every)


def _not_there(
    text: str, missing: list[int], absent: int, found: list[int], there: list[int]
) -> PlanError:
    shown = sorted(set(missing))[:_SHOWN]
    more = f" and {absent - len(shown):,} more" if absent > len(shown) else ""
    one = absent == 1
    if not found:
        return PlanError(
            f"no step lies in {text}",
            why=f"the run has these steps: {', '.join(map(str, there))}",
            fix="give a range that holds some of the others",
            field="steps",
        )
    return PlanError(
        f"the run has no step{'' if one else 's'} {', '.join(map(str, shown))}{more}, and {text} names "
        + ("it" if one else "them"),
        why=f"the run has these steps: {', '.join(map(str, there))}",
        fix=worded("name those that are there: {steps: {}}", ",".join(map(str, found)))
        if len(found) > 1
        else "give a range that holds some of the others",
        field="steps",
    )
