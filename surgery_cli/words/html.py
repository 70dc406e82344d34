"""Plain values as HTML, for notebooks: tables, long ones folded. Names come from strangers: all is escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

_MOST_ROWS: Final = 200
_MOST_COLUMNS: Final = 12
_MOST_OPEN: Final = 8
"""Longer lists and mappings are folded."""


def table_of(title: str, values: Mapping[str, Any]) -> str:
    """A mapping as a table of two columns under a title.

    >>> table_of("Seal", {"leaves": 3})
    '<table><caption>Seal</caption><tr><th>leaves</th><td>3</td></tr></table>'
    """
    return f"<table><caption>{escape(title)}</caption>{_rows(values)}</table>"


def _rows(values: Mapping[str, Any]) -> str:
    return "".join(
        f"<tr><th>{escape(str(name))}</th><td>{_cell(value)}</td></tr>"
        for name, value in list(values.items())[:_MOST_ROWS]
    ) + _rest(len(values))


def _cell(value: Any) -> str:
    if isinstance(value, Mapping):
        return _folded(value, f"<table>{_rows(value)}</table>") if value else "{}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        if value and all(isinstance(item, Mapping) for item in value):
            return _folded(value, _grid(value))
        if any(isinstance(item, Mapping | list) for item in value) or len(value) > _MOST_OPEN:
            items = "".join(f"<li>{_cell(item)}</li>" for item in value[:_MOST_ROWS])
            return _folded(value, f"<ol>{items}</ol>{_rest(len(value))}")
        return escape(", ".join(map(str, value)))
    return escape(str(value))


def _grid(rows: Sequence[Mapping[str, Any]]) -> str:
    """Mappings with the same keys as one table; of keys that many have, the first few."""
    names = list(dict.fromkeys(name for row in rows[:_MOST_ROWS] for name in row))[:_MOST_COLUMNS]
    head = "".join(f"<th>{escape(str(name))}</th>" for name in names)
    cells = ([_cell(row.get(name, "")) for name in names] for row in rows[:_MOST_ROWS])
    body = "".join(f"<tr><td>{'</td><td>'.join(row)}</td></tr>" for row in cells)
    return f"<table><tr>{head}</tr>{body}</table>{_rest(len(rows))}"


def _folded(value: Any, inner: str) -> str:
    if len(value) <= _MOST_OPEN:
        return inner
    return f"<details><summary>{len(value):,}</summary>{inner}</details>"


def _rest(count: int) -> str:
    return f"<p>and {count - _MOST_ROWS:,} more</p>" if count > _MOST_ROWS else ""
