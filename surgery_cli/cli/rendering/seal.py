"""What `seal` prints."""

from __future__ import annotations

from shlex import quote

from surgery_cli.console.page import Cell, Page
from surgery_cli.console.printable import shown_path
from surgery_cli.inputs.buckets import STARTS
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
        if sums.startswith(STARTS) or folder.startswith(STARTS):
            sealed = quote(shown_path(document.checkpoint))
            said = f"`surgery verify {sealed} --like-manifest {quote(sums)}` holds the files against it"
            page.line(f"{said}; `sha256sum -c` does in a copy on a disk", indent=2)
        else:
            page.line(
                f"`sha256sum -c {sums}` holds the files against it, run in {folder}", indent=2
            )
    for name in document.anew:
        page.line(Cell("anew: ", "doubtful"), f"{name} was on record as something else", indent=2)
    page.notes(document.notes, indent=2)
