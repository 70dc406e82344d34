"""What `clean` prints."""

from __future__ import annotations

from surgery_cli.console.page import Page
from surgery_cli.reports import Cleaning, LeftoverRow
from surgery_cli.words.quantities import byte_text

_KEPT = {
    "living": "is being written",
    "elsewhere": "of a run on another machine, or before this one was started",
    "unknown": "of a run that did not say which it is",
    "lost": "not whole any more, of a run that had begun to replace what stood there",
    "whole": "whole, of a run that has begun to replace what stood there, and may still do so",
}


def render(document: Cleaning, page: Page) -> None:
    """The document as text: one line for each directory."""
    done = "would remove" if document.dry_run else "removed"
    for row in document.removed:
        page.line(f"{done} {row.path}: {byte_text(row.bytes)}{_owner(row)}")
        _keeps(row, page, gone=not document.dry_run)
    for row in document.finished:
        done = "would put" if document.dry_run else "put"
        page.line(f"{done} in its place what {row.path} holds: {byte_text(row.bytes)}{_owner(row)}")
    for row in document.kept:
        page.verdict(f"kept {row.path}: {_KEPT.get(row.state, row.state)}{_owner(row)}")
        _keeps(row, page, gone=False)
    if not (document.removed or document.finished or document.kept):
        page.line("nothing was left by killed runs")
    page.notes(document.notes, indent=2)


def _keeps(row: LeftoverRow, page: Page, *, gone: bool) -> None:
    if row.keeps:
        page.line(
            f"it {'kept' if gone else 'keeps'} {row.keeps.partition(';')[0] if gone else row.keeps}",
            indent=2,
        )


def _owner(row: LeftoverRow) -> str:
    if row.pid is None:
        return ""
    return f" (process {row.pid}{f' on {row.host}' if row.host else ''})"
