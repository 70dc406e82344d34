"""What globs are made of, and the regular expression that matches the same texts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from surgery_cli.tree.number_ranges import NumberRange


class Text(NamedTuple):
    """These very characters."""

    text: str


class One(NamedTuple):
    """One character that the regular expression ``test`` matches."""

    test: str


class Many(NamedTuple):
    """As many characters as possible that the regular expression ``test`` matches."""

    test: str


class Look(NamedTuple):
    """No character, at a place where the regular expression ``test`` matches."""

    test: str


class Group(NamedTuple):
    """What is captured; ``numbers``: the range that it is, if it is one."""

    parts: Sequence[Part]
    numbers: NumberRange | None = None


class Optional(NamedTuple):
    """What is there if it can be."""

    parts: Sequence[Part]


class Choice(NamedTuple):
    """The first of the alternatives that fits; ``ways`` is in how many ways one text may, if not in as many."""

    alternatives: Sequence[Sequence[Part]]
    ways: int = 0


Part: TypeAlias = Text | One | Many | Look | Group | Optional | Choice


def every(parts: Sequence[Part]) -> Iterator[Part]:
    """The parts, and what they consist of."""
    for part in parts:
        yield part
        if isinstance(part, Group | Optional):
            yield from every(part.parts)
        elif isinstance(part, Choice):
            for alternative in part.alternatives:
                yield from every(alternative)


def regex(parts: Sequence[Part]) -> str:
    """The regular expression of the parts."""
    found = []
    for part in parts:
        match part:
            case Text(text):
                found.append(re.escape(text))
            case One(test) | Look(test):
                found.append(test)
            case Many(test):
                found.append(f"{test}*")
            case Group(inner):
                found.append(f"({regex(inner)})")
            case Optional(inner):
                found.append(f"(?:{regex(inner)})?")
            case Choice(alternatives):
                found.append(f"(?:{'|'.join(map(regex, alternatives))})")
    return "".join(found)
