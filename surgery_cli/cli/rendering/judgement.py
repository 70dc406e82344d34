"""What `assert` prints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from surgery_cli.console.page import Cell, Page, Row
from surgery_cli.console.printable import shown_path
from surgery_cli.draft.check import Apart
from surgery_cli.reports import Checked, CheckedRule, Judgement, RuleVerdict
from surgery_cli.words.lists import listed
from surgery_cli.words.quantities import byte_text, duration_text, leaves_text, number_text

_MOST_APART: Final = 6


def render(document: Judgement, page: Page, *, verbose: bool = False) -> None:
    """The document as text: one line per rule."""
    page.line(Cell(shown_path(document.checkpoint), "strong"))
    if document.chosen:
        page.line(document.chosen, indent=2)
    page.line()
    page.table(map(_row, document.checks), indent=2, dispensable={2: "by what it is judged"})
    render_apart(apart_of(document.checks), page, verbose=verbose)
    render_not_judged(document, page)
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


def render_apart(
    named: Iterable[tuple[str, Sequence[Apart]]], page: Page, *, verbose: bool
) -> None:
    """The leaves of which rules say nothing, counted and named; each rule with what it is called."""
    lines = [(name, one) for name, found in named for one in found]
    if lines:
        page.line()
    for name, one in lines:
        said = one.text(0 if verbose else _MOST_APART)
        page.line(Cell(name, "strong"), f": {said}", indent=2)


def render_not_judged(document: Judgement | Checked, page: Page) -> None:
    """The items of which no rule says anything, as none can."""
    if document.not_judged:
        page.line()
        said = f"not judged, as they are no trees: {listed(document.not_judged, 5)}"
        page.line(Cell(said, "faint"), indent=2)


def apart_of(checks: Iterable[CheckedRule]) -> list[tuple[str, Sequence[Apart]]]:
    """What rules of a plan say nothing of, each rule with its id or what it states."""
    return [(check.id or check.rule, check.apart) for check in checks]


def cost_of(document: Judgement | Checked) -> str:
    """What was read for it, and how long that took."""
    agreed = leaves_text(document.sources_checked)
    return (
        f"read {byte_text(document.bytes_read)}"
        + (f", {agreed} agreed with digests on record" if document.sources_checked else "")
        + f"; {duration_text(document.seconds)}"
    )
