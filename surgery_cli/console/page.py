"""Where rendered text goes: plain aligned lines, or a terminal drawn by Rich.

Whatever is put on a page is text: markup means nothing, and control characters are escaped here, in one place.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, TextIO

from surgery_cli.console.printable import escaped

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
_NEVER_FOLDED: Final = 24
"""Columns up to this width (numbers, types, keys) stay on one line."""


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
        _Columns(rows, header).write(self.stream, indent)

    def names(self, names: Sequence[str], *, most: int | None, indent: int) -> None:
        """A line for each name; of more than ``most`` for the first, and how many more there are."""
        for name in names[:most]:
            self.line(name, indent=indent)
        self.rest(len(names) - len(names[:most]), indent=indent)

    def remarks(self, label: str, texts: Iterable[str], *, indent: int = 0) -> None:
        """A line for each text, behind what kind of remark it is: ``note``, ``assumed``."""
        for text in texts:
            self.line(Cell(f"{label}: ", "doubtful"), text, indent=indent)

    def rest(self, count: int, *, indent: int) -> None:
        """A line that says how many more there are, if there are."""
        if count:
            self.line(Cell(f"and {count:,} more (`--verbose` lists them)", "faint"), indent=indent)


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
            text.append(escaped(part.text), style=self._style(part.style))
        self.console.print(text, soft_wrap=True)

    def table(self, rows: Iterable[Row], *, header: Row = (), indent: int = 0) -> None:
        table = _Columns(rows, header)
        width = self.console.width - indent
        if len(table.rows) > _MOST_ROWS_BY_RICH or not table.can_fold_to(width):
            super().table(table.rows, header=table.header, indent=indent)
            return
        from rich.padding import Padding

        self.console.print(Padding(self._grid(table), (0, 0, 0, indent)), soft_wrap=False)

    def _grid(self, table: _Columns) -> Any:
        from rich.table import Table
        from rich.text import Text

        grid = Table(
            box=None,
            show_header=bool(table.header),
            padding=(0, 2, 0, 0),
            pad_edge=False,
            header_style=self._style("faint"),
        )
        for at in table.used:
            is_right = any(row[at].right for row in islice(table.rows, 50) if len(row) > at)
            grid.add_column(
                table.title(at),
                justify="right" if is_right else "left",
                overflow="fold",
                no_wrap=table.widths[at] <= _NEVER_FOLDED,
            )
        for row in table.rows:
            cells = [row[at] if at < len(row) else Cell("") for at in table.used]
            grid.add_row(*(Text(escaped(c.text), style=self._style(c.style)) for c in cells))
        return grid

    def _style(self, style: Style) -> str:
        return "" if os.environ.get("NO_COLOR") else _RICH_STYLES[style]


class _Columns:
    """A table's cells, the columns that hold any text, and how wide they are."""

    def __init__(self, rows: Iterable[Row], header: Row) -> None:
        self.rows = [[_cell(part) for part in row] for row in rows]
        self.header = [_cell(part) for part in header]
        self.texts = [[escaped(cell.text) for cell in row] for row in self.rows]
        widths = [0] * max(map(len, self.texts), default=0)
        for row in self.texts:
            for at, text in enumerate(row):
                widths[at] = max(widths[at], len(text))
        self.used = [at for at, width in enumerate(widths) if width]
        self.widths = {at: max(widths[at], len(self.title(at))) for at in self.used}

    def title(self, at: int) -> str:
        return self.header[at].text if at < len(self.header) else ""

    def can_fold_to(self, width: int) -> bool:
        """True if the wide columns can be folded so that the table has at most ``width`` columns of text."""
        least = [min(size, _NEVER_FOLDED) for size in self.widths.values()]
        return sum(least) + 2 * len(least) <= width

    def write(self, stream: TextIO, indent: int) -> None:
        """The rows in plain aligned lines."""
        head = [(self.header, [cell.text for cell in self.header])] if self.header else []
        for cells, texts in [*head, *zip(self.rows, self.texts, strict=True)]:
            parts = [
                texts[at].rjust(self.widths[at])
                if cells[at].right
                else texts[at].ljust(self.widths[at])
                for at in self.used
                if at < len(texts)
            ]
            stream.write((" " * indent + "  ".join(parts)).rstrip() + "\n")


def page_on(stream: TextIO) -> Page:
    """The page for ``stream``: a terminal by our own look, else plain lines."""
    return Terminal(stream) if stream.isatty() else Page(stream)


def _cell(part: Cell | str) -> Cell:
    return part if isinstance(part, Cell) else Cell(part)
