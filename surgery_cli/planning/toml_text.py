"""TOML, with the lines of tables and keys, which `tomllib` does not tell."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from surgery_cli.errors import PlanError
from surgery_cli.inputs.limits import NESTING, PLAN_VALUES
from surgery_cli.inputs.numbers import decimal
from surgery_cli.planning.text import Mark, PlanText
from surgery_cli.tree.nested import Position
from surgery_cli.tree.paths import Key

_TOML_TOKEN: Final = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*|[\[\]{}\n]',
    re.DOTALL,
)
_TOML_KEY: Final = r"""(?:"(?:\\.|[^"\\\n])*"|'[^'\n]*'|[A-Za-z0-9_-]+)"""
_TOML_DOTTED: Final = rf"{_TOML_KEY}(?:[ \t]*\.[ \t]*{_TOML_KEY})*"
_TOML_STATEMENT: Final = re.compile(
    rf"[ \t]*(?:(?P<open>\[\[?)[ \t]*(?P<table>{_TOML_DOTTED})[ \t]*\]|(?P<key>{_TOML_DOTTED})[ \t]*=)"
)


def parse_toml(text: str, file: str) -> PlanText:
    import tomllib

    _refuse_long_keys(text, file)
    values = sum(map(text.count, "=,["))
    PLAN_VALUES.check(values, f"'{file}'", PlanError)
    try:
        value = tomllib.loads(text, parse_float=decimal)
    except tomllib.TOMLDecodeError as error:
        said = str(error)
        place = re.search(r"\(at line (\d+), column (\d+)\)", said)
        raise PlanError(
            f"not valid TOML: {said[: place.start()].strip() if place else said}",
            why=f"at column {place[2]}" if place else "",
            fix="text needs quotes in TOML; edits begin with `[[edits]]`",
            file=file,
            line=int(place[1]) if place else None,
        ) from None
    return PlanText(value=value, file=file, marks=_toml_marks(text.replace("\r\n", "\n")))


def _refuse_long_keys(text: str, file: str) -> None:
    """Refuse a dotted key of very many parts, whose reading takes the square of their number.

    Raises:
        PlanError: there is one.
    """

    def bare(token: re.Match[str]) -> str:
        """A part in quotes as a plain one, so that it counts; text in quotes and comments hold no keys."""
        lines = "\n" * token[0].count("\n")
        return {'"': "k", "'": "k", "#": " "}.get(token[0][0], token[0]) + lines * (
            token[0] != "\n"
        )

    plain = _TOML_TOKEN.sub(bare, text)
    most = NESTING.most
    found = re.search(rf"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){{{most}}}", plain)
    if found is not None:
        raise PlanError(
            f"a key of the plan has more than {most} parts",
            why="that is the limit `nesting`; no plan is nested so deeply",
            fix="see `surgery schema`",
            file=file,
            line=plain.count("\n", 0, found.start()) + 1,
        )


def _toml_marks(text: str) -> dict[Position, Mark]:
    """Lines of tables and keys in ``text``, which is known to be valid TOML; inline values have none of their own."""
    marks: dict[Position, Mark] = {}
    counts: dict[Position, int] = {}
    table: Position = ()
    for offset, line in _toml_statements(text):
        found = _TOML_STATEMENT.match(text, offset)
        if found is None:
            continue
        keys = _toml_keys(found["table"] or found["key"])
        if found["key"]:
            position = (*table, *keys)
        else:
            table = _in_last(keys, counts)
            if found["open"] == "[[":
                counts[table] = counts.get(table, -1) + 1
                marks.setdefault(table, Mark(line))
                table = (*table, counts[table])
            position = table
        marks.setdefault(position, Mark(line))
    return marks


def _toml_statements(text: str) -> Iterator[tuple[int, int]]:
    """Offset and line of every line that begins outside of strings and brackets."""
    depth, line = 0, 1
    yield 0, 1
    for token in _TOML_TOKEN.finditer(text):
        depth += token[0] in "[{"
        depth -= token[0] in "]}"
        line += token[0].count("\n")
        if token[0] == "\n" and depth == 0:
            yield token.end(), line


def _toml_keys(dotted: str) -> Position:
    """The keys of a dotted key, as TOML itself reads them."""
    import tomllib

    keys: list[Key] = []
    rest: Any = tomllib.loads(f"{dotted} = 0")
    while isinstance(rest, dict):
        ((key, rest),) = rest.items()
        keys.append(key)
    return tuple(keys)


def _in_last(keys: Position, counts: Mapping[Position, int]) -> Position:
    """The position of a table header: inside arrays of tables it means the last entry."""
    position: Position = ()
    for at, key in enumerate(keys):
        position = (*position, key)
        if position in counts and at < len(keys) - 1:
            position = (*position, counts[position])
    return position
