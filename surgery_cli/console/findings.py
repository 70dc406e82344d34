"""What is wrong in a document and nothing else: what `--quiet` leaves of a report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from surgery_cli.console.page import Cell, Page

_MOST: Final = 10
_LABELS: Final = {
    "error": ("finding: ", "bad"),
    "failed": ("finding: ", "bad"),
    "warned": ("warning: ", "doubtful"),
}


def render_wrong(
    document: Any, page: Page, render: Callable[[Any, Page], None], *, is_whole: bool
) -> None:
    """A line for each broken rule, leaf or file, of many the first; where none is, what it all comes to.

    ``render`` puts the whole document on a page.
    """
    wrong = [case for case in document.suite().cases if case.outcome in _LABELS]
    shown = wrong if is_whole else wrong[:_MOST]
    for case in shown:
        said = ": ".join(filter(None, (case.name, case.what)))
        page.line(Cell(*_LABELS[case.outcome]), said)
    page.rest(len(wrong) - len(shown), indent=0)
    if not wrong:
        render(document, _Headlines(page))


class _Headlines(Page):
    """Puts on a page only those lines of a document that say what it all comes to."""

    def __init__(self, page: Page) -> None:
        super().__init__(page.stream)
        self.page = page

    def line(self, *parts: Cell | str, indent: int = 0) -> None:
        pass

    def verdict(self, *parts: Cell | str, indent: int = 0) -> None:
        self.page.line(*parts)
