"""What `check` prints."""

from __future__ import annotations

from typing import Final

from surgery_cli.cli.rendering.judgement import (
    cost_of,
    judged_on,
    render_apart,
    render_not_judged,
)
from surgery_cli.console.page import Cell, Page, Row
from surgery_cli.console.printable import shown_path
from surgery_cli.errors import Group, groups
from surgery_cli.reports import Checked, RuleVerdict
from surgery_cli.words.lists import listed
from surgery_cli.words.quantities import counted

_MOST_FINDINGS = 10
_WORDS = {
    "passed": ("holds", "good"),
    "warned": ("warning", "doubtful"),
    "failed": ("broken", "bad"),
}


def render(document: Checked, page: Page, *, verbose: bool = False) -> None:
    """The document as text: a line for each rule, then what breaks those that are broken."""
    page.line(Cell(shown_path(document.checkpoint), "strong"))
    if document.chosen:
        page.line(document.chosen, indent=2)
    page.line()
    page.table(map(_row, document.rules), indent=2, dispensable=_DISPENSABLE)
    render_apart([(rule.id, rule.apart) for rule in document.rules], page, verbose=verbose)
    render_not_judged(document, page)
    for rule in document.rules:
        if not rule.holds:
            page.line()
            _render_findings(rule, page, most=None if verbose else _MOST_FINDINGS)
    page.line()
    said = Cell("holds", "good") if document.holds else Cell("broken", "bad")
    page.verdict(said, f": {_counts(document)}; {cost_of(document)}")


_DISPENSABLE: Final = {5: "what was found", 4: "by what it is judged", 2: "the rules themselves"}
"""Columns that a narrow terminal leaves out, the first of these first."""


def _row(rule: RuleVerdict) -> Row:
    stated = ", ".join(rule.rules)
    return (
        Cell(*_WORDS[rule.outcome]),
        Cell(rule.id, "strong"),
        "" if stated in rule.id else stated,
        *judged_on(rule),
    )


def _render_findings(rule: RuleVerdict, page: Page, *, most: int | None) -> None:
    """What breaks a rule, what is alike once."""
    word, style = _WORDS[rule.outcome]
    place = f"{rule.file}:{rule.line}: " if rule.file and rule.line else ""
    page.line(place, Cell(f"{word} ", style), Cell(rule.id, "strong"))
    if rule.message:
        page.line(rule.message, indent=2)
    found = [Group(one, 1) for one in rule.findings] if most is None else groups(rule.findings)
    for finding, _ in found[:most]:
        page.line(": ".join(filter(None, (finding.said, finding.why))), indent=2)
    page.rest(sum(one.number for one in found) - sum(one.number for one in found[:most]), indent=2)


def _counts(document: Checked) -> str:
    """How many rules there are, and how many of them are broken."""
    broken = {"error": document.broken("error"), "warning": document.broken("warning")}
    said = [counted(count, word) for word, count in broken.items() if count]
    return f"{counted(len(document.rules), 'rule')}, {listed(said, word='and') or 'none broken'}"
