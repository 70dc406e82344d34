"""Where rendered text goes: plain aligned lines, or a terminal drawn by Rich.

Whatever is put on a page is text: markup means nothing, and control characters are escaped here, in one place.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TextIO

from surgery_cli.console.printable import columns_of, escaped, legible
from surgery_cli.words.lists import listed
from surgery_cli.words.notes import Note

Style = str
"""A word for what the text is: ``strong``, ``faint``, ``good``, ``bad``, ``doubtful``, or nothing."""

NOTHING: Final[Mapping[int, str]] = MappingProxyType({})
_RICH_STYLES: Final = {
    "": "",
    "strong": "bold",
    "faint": "dim",
    "good": "green",
    "bad": "bold red",
    "doubtful": "yellow",
}
_MOST_ROWS_BY_RICH: Final = 400
_WIDEST_ALIGNED: Final = 80
_NEVER_FOLDED: Final = 24
"""Columns up to this width (numbers, types, keys) stay on one line."""
_LEAST_FOLDED: Final = 12
"""Wider ones are folded to this width at least; narrower, nothing in them can be read."""


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
        self.encoding = getattr(stream, "encoding", None) or "utf-8"

    def shown(self, text: str) -> str:
        """Text as it is put on this page."""
        return legible(escaped(text), self.encoding)

    def line(self, *parts: Cell | str, indent: int = 0) -> None:
        """One line of text."""
        text = "".join(self.shown(_cell(part).text) for part in parts)
        self.stream.write(" " * indent + text.rstrip() + "\n")

    def verdict(self, *parts: Cell | str, indent: int = 0) -> None:
        """The line that says what it all comes to; indented lines right below it belong to it."""
        self.line(*parts, indent=indent)

    def table(
        self,
        rows: Iterable[Row],
        *,
        header: Row = (),
        indent: int = 0,
        dispensable: Mapping[int, str] = NOTHING,
        each: bool = False,
    ) -> None:
        """Rows in aligned columns; a column without any text is left out.

        A terminal that is too narrow leaves out ``dispensable`` columns (by their places, with what is in them), the
        first of these first, and says so. ``each``: a row for every leaf or call, as a page for a browser shows all of
        them by itself.
        """
        table = _Columns(rows, header, self.shown)
        table.align(_WIDEST_ALIGNED)
        for line in table.lines():
            self.line(*line, indent=indent)

    def names(self, names: Sequence[str], *, most: int | None, indent: int) -> None:
        """A line for each name; of more than ``most`` for the first, and how many more there are."""
        for name in names[:most]:
            self.line(name, indent=indent)
        self.rest(len(names) - len(names[:most]), indent=indent)

    def remarks(self, label: str, texts: Iterable[str], *, indent: int = 0) -> None:
        """A line for each text, once, behind what kind of remark it is: ``assumed``, ``not seen``."""
        for text in dict.fromkeys(texts):
            self.line(Cell(f"{label}: ", "doubtful"), text, indent=indent)

    def notes(self, notes: Iterable[Note], *, indent: int = 0) -> None:
        """A line for each note, once, with the page that explains it."""
        for note in dict.fromkeys(notes):
            page = Cell(f" [{note.page}]", "faint")
            self.line(Cell("note: ", "doubtful"), note, page, indent=indent)

    def hint(self, text: str, *, indent: int = 0) -> None:
        """A line that says what can be typed to see more."""
        self.line(Cell(text, "faint"), indent=indent)

    def rest(self, count: int, *, indent: int) -> None:
        """A line that says how many more there are, if there are."""
        if count:
            self.line(Cell(f"and {count:,} more (`--verbose` lists them)", "faint"), indent=indent)


class Terminal(Page):
    """A terminal: colours unless NO_COLOR is set; columns are left out before lines wrap, and long cells then fold."""

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
            text.append(self.shown(part.text), style=self._style(part.style))
        self.console.print(text, soft_wrap=True)

    def table(
        self,
        rows: Iterable[Row],
        *,
        header: Row = (),
        indent: int = 0,
        dispensable: Mapping[int, str] = NOTHING,
        each: bool = False,
    ) -> None:
        table = _Columns(rows, header, self.shown)
        width = self.console.width - indent
        left_out = table.leave_out(dispensable, width)
        if (
            table.fits(width)
            or len(table.rows) > _MOST_ROWS_BY_RICH
            or not table.can_fold_to(width)
        ):
            for line in table.lines():
                self.line(*line, indent=indent)
        else:
            from rich.padding import Padding

            self.console.print(Padding(self._grid(table), (0, 0, 0, indent)), soft_wrap=False)
        if left_out:
            said = f"for want of width without: {listed(left_out)}"
            self.line(Cell(said, "faint"), indent=indent)

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
            grid.add_row(*(Text(self.shown(c.text), style=self._style(c.style)) for c in cells))
        return grid

    def _style(self, style: Style) -> str:
        return "" if os.environ.get("NO_COLOR") else _RICH_STYLES[style]


class _Columns:
    """A table's cells, the columns that hold any text, and how wide they are."""

    def __init__(self, rows: Iterable[Row], header: Row, shown: Callable[[str], str]) -> None:
        self.shown = shown
        self.rows = [[_cell(part) for part in row] for row in rows]
        self.header = [_cell(part) for part in header]
        widths = [0] * max(map(len, self.rows), default=0)
        for row in self.rows:
            for at, cell in enumerate(row):
                widths[at] = max(widths[at], columns_of(shown(cell.text)))
        self.used = [at for at, width in enumerate(widths) if width]
        self.widths = {at: max(widths[at], len(self.title(at))) for at in self.used}

    def title(self, at: int) -> str:
        return self.header[at].text if at < len(self.header) else ""

    def fits(self, width: int) -> bool:
        """True if no line is wider than ``width``."""
        return sum(self.widths[at] for at in self.used) + 2 * (len(self.used) - 1) <= width

    def leave_out(self, dispensable: Mapping[int, str], width: int) -> list[str]:
        """Leave out columns until a line fits, or can at least be folded to fit; what was in them."""
        kept = list(self.used)
        for fits in (self.fits, self.can_fold_to):
            self.used = list(kept)
            left_out = []
            for at, name in dispensable.items():
                if fits(width):
                    break
                if at in self.used:
                    self.used.remove(at)
                    left_out.append(name)
            if fits(width):
                break
        return left_out

    def can_fold_to(self, width: int) -> bool:
        """True if the wide columns can be folded so that the table has at most ``width`` columns of text."""
        widths = [self.widths[at] for at in self.used]
        least = [width if width <= _NEVER_FOLDED else _LEAST_FOLDED for width in widths]
        return sum(least) + 2 * len(least) <= width

    def align(self, most: int) -> None:
        """Let cells that are wider than ``most`` stand out of their columns, so that no other needs the room."""
        for at in self.used:
            seen = (columns_of(self.shown(row[at].text)) for row in self.rows if at < len(row))
            self.widths[at] = max(
                [len(self.title(at)), *(width for width in seen if width <= most)]
            )

    def lines(self) -> Iterator[list[Cell]]:
        """The rows in aligned lines, the titles first."""
        head = [[cell._replace(style=cell.style or "faint") for cell in self.header]]
        for cells in [*(head if self.header else []), *self.rows]:
            shown = [at for at in self.used if at < len(cells)]
            while shown and not cells[shown[-1]].text:
                shown.pop()
            yield [
                Cell(
                    "  " * (at != shown[0]) + self._aligned(cells[at], at, at == shown[-1]),
                    cells[at].style,
                )
                for at in shown
            ]

    def _aligned(self, cell: Cell, at: int, is_last: bool) -> str:
        text = self.shown(cell.text)
        missing = " " * (self.widths[at] - columns_of(text))
        if cell.right:
            return missing + text
        return text if is_last else text + missing


def page_on(stream: TextIO) -> Page:
    """The page for ``stream``: a terminal by our own look, else plain lines."""
    return Terminal(stream) if stream.isatty() else Page(stream)


def _cell(part: Cell | str) -> Cell:
    return part if isinstance(part, Cell) else Cell(part)
