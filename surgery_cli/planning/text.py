"""A parsed plan document: plain values and their lines, and how they are shown in messages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

import msgspec

from surgery_cli.errors import PlanError, Problem
from surgery_cli.tree.nearness import nearest
from surgery_cli.tree.nested import Position, contents
from surgery_cli.words.lists import shortened


class PlanText(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed document: its plain value, and lines (from 1) by position. ``value`` is None if it is empty.

    ``file`` is empty for what was typed.
    """

    value: Any
    file: str
    lines: Mapping[Position, int] = {}

    def line(self, position: Position) -> int | None:
        """The line of ``position``, or of the nearest thing around it whose line is known."""
        for depth in range(len(position), 0, -1):
            if position[:depth] in self.lines:
                return self.lines[position[:depth]]
        return None

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
        return Problem(
            what, why=why, fix=fix, file=self.file or None, line=self.line(position), field=field
        )


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


def nearest_fix(name: str, candidates: list[str], *, otherwise: str) -> str:
    """What to do about a name that does not exist: the nearest that does, else ``otherwise``."""
    found = nearest(name, candidates, 1)
    return f"the nearest is `{found[0]}`" if found else otherwise


def refuse_twice(key: str, first: int, second: int, file: str) -> NoReturn:
    raise PlanError(
        f"the key `{key}` stands twice in one mapping",
        why=f"on line {first} and on line {second}",
        fix="keep one of them; several edits are a list, each beginning with `- op:`",
        file=file,
        line=second,
    )
