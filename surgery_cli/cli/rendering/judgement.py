"""What `assert` prints."""

from __future__ import annotations

from surgery_cli.console.page import Cell, Page, Row
from surgery_cli.console.printable import shown_path
from surgery_cli.reports import CheckedRule, Judgement
from surgery_cli.words.quantities import byte_text, duration_text, leaves_text, number_text


def render(document: Judgement, page: Page) -> None:
    """The document as text: one line per rule."""
    page.line(Cell(shown_path(document.checkpoint), "strong"))
    if document.chosen:
        page.line(document.chosen, indent=2)
    page.line()
    page.table([_row(check) for check in document.checks], indent=2)
    page.line()
    agreed = leaves_text(document.sources_checked)
    page.line(
        Cell("holds", "good"),
        f": read {byte_text(document.bytes_read)}"
        + (f", {agreed} agreed with digests on record" if document.sources_checked else "")
        + f"; {duration_text(document.seconds)}",
    )


def _row(check: CheckedRule) -> Row:
    between = ""
    if check.least is not None and check.most is not None:
        ends = dict.fromkeys(map(number_text, (check.least, check.most)))
        between = f"found {' to '.join(ends)}"
    how = f"by values of {check.by_values:,}" if check.by_values else "by metadata"
    return (check.rule, Cell(leaves_text(check.leaves), right=True), how, between)
