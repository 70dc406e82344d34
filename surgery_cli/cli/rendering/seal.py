"""What `seal` prints."""

from __future__ import annotations

from surgery_cli.console.page import Cell, Page
from surgery_cli.console.printable import shown_path
from surgery_cli.reports import Seal
from surgery_cli.words.quantities import counted, leaves_text


def render(document: Seal, page: Page) -> None:
    """The document as text."""
    page.line(Cell(shown_path(document.checkpoint), "strong"))
    page.line(document.chosen, indent=2)
    files = counted(document.files, "file")
    page.line(
        Cell("sealed", "good"),
        f": digests of {leaves_text(document.leaves)} and {files} in {shown_path(document.record)}",
    )
    if document.sha256sums is not None:
        sums, folder = map(shown_path, (document.sha256sums.file, document.sha256sums.folder))
        page.line(f"`sha256sum -c {sums}` holds the files against it, run in {folder}", indent=2)
    for name in document.anew:
        page.line(Cell("anew: ", "doubtful"), f"{name} was on record as something else", indent=2)
    page.notes(document.notes, indent=2)
