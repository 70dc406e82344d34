"""A page of text as HTML: the same lines and tables as on a terminal, with what was proved apart, to stand on top."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from io import StringIO
from typing import Final

from surgery_cli.console.page import NOTHING, Cell, Page, Row
from surgery_cli.console.printable import escaped

_MOST_ROWS: Final = 500
"""More are in the data of the page."""

_MOST_OPEN: Final = 40
"""Longer tables are folded, and can be opened without a script."""

_CODE: Final = re.compile("`([^`]+)`")


class HtmlPage(Page):
    """Paragraphs, lists and tables; what is long is folded as on a terminal."""

    is_terminal = True

    def __init__(self) -> None:
        super().__init__(StringIO())
        self.verdicts: list[str] = []
        """What the document comes to: the verdict, and what stands indented below it."""
        self.said: list[str] = []
        """All the rest, in its order."""
        self._is_verdict, self._indent = False, 0

    def verdict(self, *parts: Cell | str, indent: int = 0) -> None:
        self.verdicts.append(_paragraph(parts, 0))
        self._is_verdict, self._indent = True, indent

    def line(self, *parts: Cell | str, indent: int = 0) -> None:
        if not parts:
            self._is_verdict = False
            return
        self._is_verdict = self._is_verdict and indent > self._indent
        target = self.verdicts if self._is_verdict else self.said
        target.append(_paragraph(parts, indent))

    def table(
        self,
        rows: Iterable[Row],
        *,
        header: Row = (),
        indent: int = 0,
        dispensable: Mapping[int, str] = NOTHING,
        each: bool = False,
    ) -> None:
        self._is_verdict = False
        shown = [[_cell(part) for part in row] for row in rows]
        used = [
            at
            for at in range(max(map(len, shown), default=0))
            if any(len(row) > at and row[at].text for row in shown)
        ]
        if not used:
            return
        content = f'<div class="scroll">{_table(shown, used, header)}</div>'
        if len(shown) > _MOST_OPEN:
            content = f"<details><summary>{len(shown):,} rows</summary>{content}</details>"
        self.said.append(f"<div{_class('each' if each else 'rows')}>{content}</div>")

    def names(self, names: Sequence[str], *, most: int | None, indent: int) -> None:
        self._is_verdict = False
        shown = names[: min(most or _MOST_ROWS, _MOST_ROWS)]
        items = "".join(f"<li>{_html(Cell(name))}</li>" for name in shown)
        content = f'<ul class="names">{items}</ul>'
        if len(shown) > _MOST_OPEN:
            content = f"<details><summary>{len(shown):,} names</summary>{content}</details>"
        self.said.append(content)
        self.rest(len(names) - len(shown), indent=indent)

    def hint(self, text: str, *, indent: int = 0) -> None:
        """Nothing: nobody types anything on this page."""

    def rest(self, count: int, *, indent: int) -> None:
        if count:
            self.line(Cell(f"and {count:,} more", "faint"), indent=indent)


def _table(rows: Sequence[Sequence[Cell]], used: Sequence[int], header: Row) -> str:
    titles = [_cell(header[at]).text if at < len(header) else "" for at in used]
    is_right = [any(row[at].right for row in rows[:50] if len(row) > at) for at in used]
    heads = "".join(
        f'<th scope="col"{_class("right" * right)}>{_html(Cell(title))}</th>'
        for title, right in zip(titles, is_right, strict=True)
    )
    head = f"<thead><tr>{heads}</tr></thead>" if header else ""
    body = "".join(f"<tr>{''.join(_cells(row, used))}</tr>" for row in rows[:_MOST_ROWS])
    rest = f"<p>and {len(rows) - _MOST_ROWS:,} more</p>" if len(rows) > _MOST_ROWS else ""
    return f"<table>{head}<tbody>{body}</tbody></table>{rest}"


def _cells(row: Sequence[Cell], used: Sequence[int]) -> Iterator[str]:
    for at in used:
        cell = row[at] if at < len(row) else Cell("")
        yield f"<td{_class('right' * cell.right)}>{_html(cell)}</td>"


def _paragraph(parts: Sequence[Cell | str], indent: int) -> str:
    text = "".join(_html(_cell(part)) for part in parts)
    return f"<p{_class('in' if indent else '')}>{text}</p>"


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def _html(cell: Cell) -> str:
    """Text with everything escaped that means something, isolated so that no name turns its neighbours around."""
    text = _CODE.sub(r"<code>\1</code>", escape(escaped(cell.text)))
    if not text:
        return ""
    return f"<bdi{_class(cell.style)}>{text}</bdi>"


def _cell(part: Cell | str) -> Cell:
    return part if isinstance(part, Cell) else Cell(part)
