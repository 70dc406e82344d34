"""Where rendered text goes: plain aligned lines, or a terminal drawn by Rich.

Whatever is put on a page is text: markup means nothing, and control characters are escaped here, in one place.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, TextIO

from surgery_cli.cli.rendering.words import escaped

Style = str
"""A word for what the text is: ``strong``, ``faint``, ``good``, ``bad``, ``doubtful``, or nothing."""

_RICH_STYLES: Final = {
    "": "",
    "strong": "bold",
    "faint": "dim",
    "good": "green",
    "bad": "bold red",
    "doubtful": "yellow",
}
_MOST_ROWS_BY_RICH: Final = 400


class Cell(NamedTuple):
    """A piece of text; ``right`` aligns it to the right of its column."""

    text: str
    style: Style = ""
    right: bool = False


Row = Sequence[Cell | str]


class Page:
    """Plain lines: columns aligned by spaces, nothing cut off, no colours."""

    is_terminal: bool = False

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def line(self, *parts: Cell | str, indent: int = 0) -> None:
        """One line of text."""
        text = "".join(escaped(_cell(part).text) for part in parts)
        self.stream.write(" " * indent + text.rstrip() + "\n")

    def table(self, rows: Iterable[Row], *, header: Row = (), indent: int = 0) -> None:
        """Rows in aligned columns; a column without any text is left out."""
        _aligned(self.stream, rows, header, indent)


class Terminal(Page):
    """A terminal: colours unless NO_COLOR is set, and long cells fold inside their column."""

    is_terminal = True

    def __init__(self, stream: TextIO, *, width: int | None = None) -> None:
        from rich.console import Console

        super().__init__(stream)
        is_dumb = os.environ.get("TERM") == "dumb"
        self.console = Console(
            file=stream,
            width=width,
            force_terminal=not is_dumb,
            highlight=False,
            markup=False,
            emoji=False,
            soft_wrap=True,
        )

    def line(self, *parts: Cell | str, indent: int = 0) -> None:
        from rich.text import Text

        text = Text(" " * indent)
        for part in map(_cell, parts):
            text.append(escaped(part.text), style=_RICH_STYLES[part.style])
        self.console.print(text, soft_wrap=True)

    def table(self, rows: Iterable[Row], *, header: Row = (), indent: int = 0) -> None:
        rows = list(rows)
        if len(rows) > _MOST_ROWS_BY_RICH:
            super().table(rows, header=header, indent=indent)
            return
        from rich.padding import Padding

        grid = _grid([list(map(_cell, row)) for row in rows], list(map(_cell, header)))
        self.console.print(Padding(grid, (0, 0, 0, indent)), soft_wrap=False)


def page_on(stream: TextIO) -> Page:
    """The page for ``stream``: a terminal by our own look, else plain lines."""
    return Terminal(stream) if stream.isatty() else Page(stream)


def _cell(part: Cell | str) -> Cell:
    return part if isinstance(part, Cell) else Cell(part)


def _aligned(stream: TextIO, rows: Iterable[Row], header: Row, indent: int) -> None:
    table = [[_cell(part) for part in row] for row in rows]
    texts = [[escaped(cell.text) for cell in row] for row in table]
    count = max((len(row) for row in texts), default=0)
    used = [at for at in range(count) if any(len(row) > at and row[at] for row in texts)]
    if header:
        table.insert(0, [_cell(part) for part in header])
        texts.insert(0, [cell.text for cell in table[0]])
    widths = {at: max(len(row[at]) for row in texts if len(row) > at) for at in used}
    for row, cells in zip(texts, table, strict=True):
        parts = [
            row[at].rjust(widths[at]) if cells[at].right else row[at].ljust(widths[at])
            for at in used
            if at < len(row)
        ]
        stream.write((" " * indent + "  ".join(parts)).rstrip() + "\n")


def _grid(table: list[list[Cell]], header: list[Cell]) -> Any:
    from rich.table import Table
    from rich.text import Text

    count = max((len(row) for row in table), default=0)
    used = [at for at in range(count) if any(len(row) > at and row[at].text for row in table)]
    grid = Table(
        box=None, show_header=bool(header), padding=(0, 2, 0, 0), pad_edge=False, header_style="dim"
    )
    for at in used:
        is_right = any(row[at].right for row in islice(table, 50) if len(row) > at)
        title = header[at].text if at < len(header) else ""
        grid.add_column(title, justify="right" if is_right else "left", overflow="fold")
    for row in table:
        cells = [row[at] if at < len(row) else Cell("") for at in used]
        grid.add_row(*(Text(escaped(c.text), style=_RICH_STYLES[c.style]) for c in cells))
    return grid
