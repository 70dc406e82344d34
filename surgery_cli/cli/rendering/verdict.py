"""What `verify` prints."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from surgery_cli.cli.rendering.series import render_rest, rows_of
from surgery_cli.console.page import Cell, Page
from surgery_cli.console.printable import shown_path
from surgery_cli.reports import Finding, Sampled, Verdict
from surgery_cli.words.lists import listed
from surgery_cli.words.quantities import counted, leaves_text
from surgery_cli.words.series import Series

_MOST_FINDINGS: Final = 20


def render(document: Verdict, page: Page, *, strict: bool = False, verbose: bool = False) -> None:
    """The document as text: the counts first, then every finding."""
    is_good = document.agrees and not (strict and document.without_digest)
    page.verdict(
        f"{_checked(document)}, {_unchecked(document)}: "
        if document.sample is None
        else f"{_sample(document.sample)}: ",
        Cell(_outcome(document, strict=strict), "good" if is_good else "bad"),
    )
    page.line(shown_path(document.checkpoint), indent=2)
    if document.chosen:
        page.line(document.chosen, indent=4)
    if document.against:
        page.line(f"held against {shown_path(document.against)}", indent=2)
    if document.chosen_against:
        page.line(document.chosen_against, indent=4)
    if document.findings:
        page.line()
    found = rows_of(document.findings, lambda finding: finding.path or ".", _said, verbose=verbose)
    shown = found if verbose else found[:_MOST_FINDINGS]
    for one in shown:
        _render_finding(one, page)
    render_rest(page, found, shown, indent=0)
    page.notes(document.notes, indent=2)


def _sample(sample: Sampled) -> str:
    """What was read, and of how much."""
    share = sample.bytes / sample.all_bytes if sample.all_bytes else 1.0
    seed = "" if sample.seed is None else f" (--seed {sample.seed})"
    leaves = f"{sample.leaves:,} of {leaves_text(sample.all_leaves)}{_more(sample.leaves_in_part)}"
    files = ""
    if sample.all_files:
        of = counted(sample.all_files, "file")
        files = f", {sample.files:,} of {of}{_more(sample.files_in_part)}"
    return f"sample {sample.asked}{seed}, {100 * share:.2f} % of all bytes, {leaves}{files}"


def _more(in_part: int) -> str:
    return f" and {in_part:,} in part" if in_part else ""


def _outcome_of_sample(sample: Sampled, *, strict: bool) -> str:
    """Never that the whole agrees: nothing is known of what was not read."""
    if strict and sample.leaves_without_digest:
        return f"{leaves_text(sample.leaves_without_digest)} of all have no digest"
    if sample.leaves_without_digest == sample.all_leaves and not sample.all_files:
        return "nothing was found wrong there, but nothing could be compared"
    if sample.bytes < sample.all_bytes:
        return "nothing differs there; the rest was not looked at"
    if sample.leaves_without_digest:
        return f"nothing differs; {leaves_text(sample.leaves_without_digest)} have no digest"
    return "agrees: all of it was read"


def _checked(document: Verdict) -> str:
    files = f" and {counted(document.files_checked, 'file')}" if document.files_checked else ""
    return f"{leaves_text(document.checked)}{files} checked"


def _unchecked(document: Verdict) -> str:
    """What was not proved."""
    if document.has_lost_digests:
        return f"{document.unchecked:,} unchecked, as their record does not hold"
    if not document.unchecked or not document.reads_values:
        return f"{document.unchecked:,} unchecked"
    have = "has" if document.unchecked == 1 else "have"
    total = leaves_text(document.checked + document.unchecked)
    return f"{document.unchecked:,} of {total} {have} no digest"


def _outcome(document: Verdict, *, strict: bool) -> str:
    if document.sample is not None and not document.findings:
        return _outcome_of_sample(document.sample, strict=strict)
    if document.findings:
        return counted(len(document.findings), "finding")
    if not document.agrees:
        return "does not agree"
    if strict and document.unchecked:
        return "unchecked leaves remain"
    if document.checked or document.files_checked:
        return "agrees" if document.reads_values else "agrees in structure; no value was read"
    return "nothing was found wrong, but nothing could be compared"


def _said(finding: Finding) -> Hashable:
    """What findings of one series have in common: not the two sides, which may be digests."""
    said = (finding.effect, finding.sureness, finding.fix)
    return (finding.what, finding.leaves, tuple(finding.twins), said)


def _render_finding(one: Series, page: Page) -> None:
    findings: list[Finding] = one.members
    first = findings[0]
    count = f"{leaves_text(len(findings))}, each " if len(findings) > 1 else ""
    page.line(Cell(one.name, "strong"), f": {count}{first.what}")
    sides = f"here {first.here or '—'}, there {first.there or '—'}"
    for said in (sides if first.here or first.there else "", first.detail):
        is_of_all = len({(f.here, f.there, f.detail) for f in findings}) == 1
        if said:
            page.line(said if is_of_all else f"the first: {said}", indent=2)
    if first.effect:
        page.line(_effect_text(first), indent=2)
    for said in filter(None, (first.sureness, first.fix)):
        page.line(said, indent=2)


def _effect_text(finding: Finding) -> str:
    """What a restore makes of it, and how much is concerned."""
    text = f"{finding.effect}: {leaves_text(finding.leaves)}"
    return f"{text}, with {listed(finding.twins, 5)}" if finding.twins else text
