"""A parsed plan document: plain values and their lines, and how they are shown in messages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, NoReturn

import msgspec

from surgery_cli.errors import PlanError, Problem
from surgery_cli.tree.nearness import nearest
from surgery_cli.tree.nested import Position, contents
from surgery_cli.words.lists import shortened


class Mark(NamedTuple):
    """Where something begins in a text: the line, and the column where it is known, from 1."""

    line: int
    column: int | None = None


class PlanText(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed document: its plain value, and what begins where, by position. ``value`` is None if it is empty.

    ``file`` is empty for what was typed.
    """

    value: Any
    file: str
    marks: Mapping[Position, Mark] = {}

    def mark(self, position: Position) -> Mark | None:
        """Where ``position`` begins, or the nearest thing around it of which that is known."""
        for depth in range(len(position), 0, -1):
            if position[:depth] in self.marks:
                return self.marks[position[:depth]]
        return None

    def place(self, position: Position) -> dict[str, Any]:
        """The fields of a problem that say where ``position`` is."""
        mark = self.mark(position)
        return {"file": self.file or None, **({} if mark is None else mark._asdict())}

    def problem(
        self,
        position: Position,
        what: str,
        *,
        why: str = "",
        fix: str = "",
        field: str | None = None,
    ) -> Problem:
        """A problem with what stands at ``position``."""
        return Problem(what, why=why, fix=fix, field=field, **self.place(position))


def shown(value: Any) -> str:
    """A value as it would stand in a plan, shortened: for messages."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except TypeError:
        text = str(value)
    except ValueError:  # Python writes no number of more than 4300 digits
        text = "of thousands of digits"
    return shortened(text)


def with_pairs_joined(text: str) -> str:
    r"""``text`` with surrogate pairs, as JSON escapes them, made one character each; lone ones stay.

    >>> with_pairs_joined("\ud83d\ude00") == "\U0001f600"
    True
    """
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def refuse_halves(text: PlanText) -> None:
    """Refuse text that no file can hold: half of a surrogate pair, which only an escape can write.

    Raises:
        PlanError: the first such text, with its line.
    """
    texts = ((at, item) for at, item in contents(text.value) if isinstance(item, str))
    for position, item in texts:
        try:
            item.encode()
        except UnicodeEncodeError as error:
            half = f"U+{ord(item[error.start]):04X}"
            what = f"the text {shown(item)} holds half of a character: {half}"
            fix = "write the character itself instead of its escape"
            raise PlanError(text.problem(position, what, fix=fix)) from None


def text_of_value(value: Any) -> PlanText:
    """The document that a program has put together of plain values, in the place of a file.

    Raises:
        PlanError: it holds what no file could: a key that is no text, half of a character.
    """
    odd = next((key for key in _keys(value) if not isinstance(key, str)), None)
    if odd is not None:
        raise PlanError(f"the key {shown(odd)} is not text", fix="put it in quotes if it is a name")
    text = PlanText(value=value, file="")
    refuse_halves(text)
    return text


def _keys(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value
        value = value.values()
    elif not isinstance(value, list):
        return
    for inner in value:
        yield from _keys(inner)


def nearest_fix(name: str, candidates: list[str], *, otherwise: str) -> str:
    """What to do about a name that does not exist: the nearest that does, else ``otherwise``."""
    found = nearest(name, candidates, 1)
    return f"the nearest is `{found[0]}`" if found else otherwise


def both_places(first: Mark | None, second: Mark | None) -> str:
    """Where two things stand, in words; empty where that is not known.

    >>> both_places(Mark(2), Mark(3)), both_places(Mark(2, 5), Mark(2, 9)), both_places(Mark(2), Mark(2))
    ('on line 2 and on line 3', 'in columns 5 and 9 of line 2', 'both on line 2')
    """
    if first is None or second is None:
        return ""
    if first.line != second.line:
        return f"on line {first.line} and on line {second.line}"
    if first.column is None or second.column is None:
        return f"both on line {first.line}"
    return f"in columns {first.column} and {second.column} of line {first.line}"


def refuse_twice(key: str, first: Mark, second: Mark, file: str) -> NoReturn:
    raise PlanError(
        f"the key `{key}` stands twice in one mapping",
        why=both_places(first, second),
        fix="keep one of them; several edits are a list, each beginning with `- op:`",
        file=file,
        **second._asdict(),
    )
