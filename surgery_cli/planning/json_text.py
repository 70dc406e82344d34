"""JSON, with the line of every value."""

from __future__ import annotations

import json
import re
from typing import Final, NoReturn

from surgery_cli.errors import PlanError
from surgery_cli.inputs.limits import check_values
from surgery_cli.inputs.numbers import decimal
from surgery_cli.planning.text import Mark, PlanText, refuse_twice
from surgery_cli.tree.nested import Position

_JSON_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:\n]|[^\s{}\[\],:"]+')


def parse_json(text: str, file: str) -> PlanText:
    def refuse_constant(name: str) -> NoReturn:
        raise PlanError(
            f"`{name}` is not valid JSON",
            fix="write the plan in YAML, where it is `.nan` or `.inf`",
            file=file,
        )

    check_values(text.encode(errors="replace"), f"'{file}'", PlanError)
    try:
        value = json.loads(text, parse_float=decimal, parse_constant=refuse_constant)
    except json.JSONDecodeError as error:
        raise PlanError(
            f"not valid JSON: {error.msg[0].lower()}{error.msg[1:]}",
            why=f"at column {error.colno}",
            fix="JSON has no comments and no comma after the last entry; YAML plans may hold both",
            file=file,
            line=error.lineno,
        ) from None
    return PlanText(value=value, file=file, marks=_json_marks(text, file))


def _json_marks(text: str, file: str) -> dict[Position, Mark]:
    """Lines of everything in ``text``, which is known to be valid JSON; repeated keys are refused."""
    marks: dict[Position, Mark] = {}
    line = 1
    # Of every open container: its position, the index of the next list item (None: a mapping), the key read last.
    open_: list[tuple[Position, int | None, str | None]] = []
    for token in _JSON_TOKEN.findall(text):
        if token == "\n":
            line += 1
            continue
        if token in "]}":
            open_.pop()
            continue
        if token in ",:":
            continue
        position: Position = ()
        if open_:
            parent, index, key = open_.pop()
            if index is not None:
                position = (*parent, index)
                marks[position] = Mark(line)
                open_.append((parent, index + 1, None))
            elif key is None:
                key = json.loads(token)
                position = (*parent, key)
                if position in marks:
                    refuse_twice(key, marks[position], Mark(line), file)
                marks[position] = Mark(line)
                open_.append((parent, None, key))
                continue
            else:
                position = (*parent, key)
                open_.append((parent, None, None))
        if token in "[{":
            open_.append((position, 0 if token == "[" else None, None))
    return marks
