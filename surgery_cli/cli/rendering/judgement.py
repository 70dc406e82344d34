"""What `assert` prints."""

from __future__ import annotations

from surgery_cli.console.page import Cell, Page, Row
from surgery_cli.console.printable import shown_path
from surgery_cli.reports import Checked, CheckedRule, Judgement, RuleVerdict
from surgery_cli.words.quantities import byte_text, duration_text, leaves_text, number_text


def render(document: Judgement, page: Page) -> None:
    """The document as text: one line per rule."""
    page.line(Cell(shown_path(document.checkpoint), "strong"))
    if document.chosen:
        page.line(document.chosen, indent=2)
    page.line()
    page.table(map(_row, document.checks), indent=2, dispensable={2: "by what it is judged"})
    page.line()
    page.verdict(Cell("holds", "good"), f": {cost_of(document)}")


def _row(check: CheckedRule) -> Row:
    return (check.rule, *judged_on(check))


def judged_on(rule: CheckedRule | RuleVerdict) -> Row:
    """Of how many leaves a rule was judged, by what, and between which numbers they lie."""
    between = ""
    if rule.least is not None and rule.most is not None:
        ends = dict.fromkeys(map(number_text, (rule.least, rule.most)))
        between = f"found {' to '.join(ends)}"
    how = f"by values of {rule.by_values:,}" if rule.by_values else "by metadata"
    return (Cell(leaves_text(rule.leaves), right=True), how, between)


def cost_of(document: Judgement | Checked) -> str:
    """What was read for it, and how long that took."""
    agreed = leaves_text(document.sources_checked)
    return (
        f"read {byte_text(document.bytes_read)}"
        + (f", {agreed} agreed with digests on record" if document.sources_checked else "")
        + f"; {duration_text(document.seconds)}"
    )
