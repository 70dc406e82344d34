"""What `plan`, `apply` and the edit commands print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import UNSET

from surgery_cli.cli.rendering import layout
from surgery_cli.cli.rendering.judgement import apart_of, render_apart
from surgery_cli.cli.rendering.series import count_of, render_rest
from surgery_cli.console.page import Cell, Page, Row
from surgery_cli.console.printable import shown_path
from surgery_cli.optimizer.follow.answers import meaning
from surgery_cli.reports import ChangedLeaf, CheckedRule, EditLine, Preview, Report
from surgery_cli.store.filesystem.request_counts import Requests
from surgery_cli.words.lists import listed
from surgery_cli.words.quantities import (
    byte_text,
    counted,
    duration_text,
    leaves_text,
    minutes_text,
    number_text,
)
from surgery_cli.words.series import Series, in_series

_MOST_REMOVED = 5
_MOST_SHARED = 3


def render(document: Preview, page: Page, *, verbose: bool = False) -> None:
    """The document as text: one line per edit, then notes, then what is removed, then the bytes."""
    _render_way(document, page)
    if document.edits:
        page.line()
        page.table(_edit_rows(document), indent=2)
    _render_policy(document, page)
    render_apart(apart_of(document.checks or ()), page, verbose=verbose)
    if document.reshard:
        page.line()
        layout.render_resharded(document.reshard, page)
    if document.assumptions or document.notes:
        page.line()
        page.remarks("assumed", (taken.sentence for taken in document.assumptions), indent=2)
        page.notes(document.notes, indent=2)
    for check in document.checks or ():
        _render_measured(check, page, verbose=verbose)
    if document.removed:
        page.line()
        word = "does not export" if document.exported else "removes"
        _render_removed(document.removed, page, word, verbose=verbose)
    if verbose and document.leaves:
        page.line()
        page.table(map(_leaf_row, document.leaves), indent=2, dispensable=_OF_LEAVES, each=True)
    page.line()
    if isinstance(document, Report) and document.is_repeated:
        page.verdict(Cell("already done", "good"), ": nothing is left to be done")
        page.line(Cell(f"draft {document.draft}", "faint"))
        return
    _render_bytes(document, page)
    if isinstance(document, Report):
        _render_outcome(document, page, verbose=verbose)
    page.line(Cell(f"draft {document.draft}", "faint"))


def _render_way(document: Preview, page: Page) -> None:
    way = shown_path(document.source)
    if document.destination is not None:
        way = f"{way} → {document.destination}"
    page.line(Cell(way, "strong"))
    if document.chosen:
        page.line(document.chosen, indent=2)
    if not document.edits:
        what = "another layout" if document.reshard else "a plain copy"
        page.line(f"no edits: {'another format' if document.exported else what}", indent=2)


def _meaning(policy: str, effect: str, taken_for: Sequence[str]) -> str:
    """What the policy does to twins under this edit, in brackets; '' where its name says it."""
    said = meaning(policy, effect)
    if said and policy in ("transform", "reset") and taken_for:
        said = f"{said}, taken for {listed(taken_for, word='and')}"
    return f" ({said})" if said else ""


def _edit_rows(document: Preview) -> list[Row]:
    """A row for every edit; of one that states rules, whether these hold."""
    found: dict[int, list[bool | None]] = {}
    for check in document.checks or ():
        found.setdefault(check.edit, []).append(check.holds)
    said = {edit: "holds" if all(seen) else "judged on values" for edit, seen in found.items()}
    gone = "not exported" if document.exported else "deleted"
    return [_edit_row(n, edit, said.get(n, ""), gone) for n, edit in enumerate(document.edits, 1)]


def _render_policy(document: Preview, page: Page) -> None:
    """A row for every rule of the plan's policy."""
    rules = [check for check in document.checks or () if check.id]
    if rules:
        page.line()
        page.table(map(_policy_row, rules), indent=2)


def _policy_row(check: CheckedRule) -> Row:
    outcomes = {True: Cell("holds", "good"), False: Cell("warning", "doubtful")}
    return (
        "check",
        Cell(check.id, "strong"),
        "" if check.rule in check.id else check.rule,
        Cell(leaves_text(check.leaves), right=True),
        Cell("judged on values") if check.holds is None else outcomes[check.holds],
    )


def _edit_row(number: int, edit: EditLine, said: str, gone: str) -> Row:
    """A row for one edit; ``gone`` is the word for twins that the result has no more."""
    twins = ", ".join(
        f"{count:,} {gone if policy == 'deleted' else policy}{_meaning(policy, edit.effect, edit.taken_for)}"
        for policy, count in edit.twins.items()
    )
    return (
        Cell(str(number), "faint", right=True),
        Cell(edit.operation, "strong"),
        Cell(edit.summary),
        Cell(leaves_text(edit.leaves), right=True),
        Cell(byte_text(edit.bytes) if edit.bytes else said or "no values", right=True),
        Cell(f"twins: {twins}" if twins else ""),
    )


def _render_measured(check: CheckedRule, page: Page, *, verbose: bool) -> None:
    """What was measured of every leaf: between which numbers that is."""
    if not check.of_each or check.least is None or check.most is None:
        return
    ends = dict.fromkeys(map(number_text, (check.least, check.most)))
    of = "" if len(check.of_each) == 1 else f" of {leaves_text(len(check.of_each))}"
    page.line(f"{check.rule}{of}: {' to '.join(ends)}, measured on what is written", indent=2)
    if verbose:
        page.table([(path, number_text(of)) for path, of in check.of_each.items()], indent=4)


def _render_removed(removed: list[str], page: Page, word: str, *, verbose: bool) -> None:
    page.line(Cell(f"{word} {leaves_text(len(removed))}", "doubtful"), indent=2)
    found = [Series(path, [path]) for path in removed]
    if not verbose and len(removed) > _MOST_REMOVED:
        found = in_series(removed, str)
    shown = found if verbose else found[:_MOST_REMOVED]
    page.table([(one.name, count_of(one)) for one in shown], indent=4)
    render_rest(page, found, shown, indent=4)


_OF_LEAVES: Final = {3: "where they are from", 2: "by which edits"}
"""Columns that a narrow terminal leaves out, the first of these first."""


def _leaf_row(leaf: ChangedLeaf) -> Row:
    change = leaf.after
    if leaf.before != leaf.after:
        change = f"{leaf.before or 'new'} → {leaf.after}"
    origin = f"from {leaf.from_}" if leaf.from_ and leaf.from_ != leaf.path else ""
    by = ", ".join(leaf.operations)
    if leaf.chunks_by_reference:
        by += f" ({counted(leaf.chunks_by_reference, 'chunk')} by reference)"
    return (leaf.path, Cell(change), Cell(by, "faint"), Cell(origin), Cell(leaf.policy or ""))


def _render_bytes(document: Preview, page: Page) -> None:
    page.line(Cell(document.strategy, "strong"), ": ", document.strategy_reason)
    is_done = isinstance(document, Report)
    words = ("read", "wrote", "linked", "copied") if is_done else ("read", "write", "link", "copy")
    sizes = (
        document.bytes_read,
        document.bytes_written,
        document.bytes_linked,
        document.bytes_copied,
    )
    first, *others = (f"{word} {byte_text(n)}" for word, n in zip(words, sizes, strict=True))
    if not is_done and document.bytes_read_at_most is not UNSET:
        first += f" (at most {byte_text(document.bytes_read_at_most)})"
    if document.bytes_read_to_seal is not UNSET:
        first += f" ({byte_text(document.bytes_read_to_seal)} of it to seal)"
    parts = ", ".join([first, *others])
    about = "" if is_done else " (estimated)"
    taken = f"{leaves_text(document.by_reference)} by reference"
    if document.rearranged:
        taken += f", {document.rearranged:,} of them rearranged"
    if document.partly_by_reference:
        taken += f", {document.partly_by_reference:,} more in part"
    page.line(f"{parts}{about}; {taken}")
    if document.requests is not UNSET:
        page.line(_requests_text(document, document.requests) + about)


def _requests_text(document: Preview, asked: Requests) -> str:
    """What services are asked for, and how long a preview thinks that takes."""
    kinds = {
        "read": asked.read,
        "write": asked.written,
        "copy, by the service itself,": asked.copied,
    }
    parts = [
        f"{one.requests:,} {word} {byte_text(one.bytes)}"
        for word, one in kinds.items()
        if one.requests
    ]
    if asked.other:
        parts.append(f"{asked.other:,} list, look up or delete")
    said = f"{counted(asked.total, 'request')} to buckets: {', '.join(parts)}"
    if document.minutes is UNSET or document.bytes_per_second is UNSET:
        return said
    rate = f"{byte_text(document.bytes_per_second)}/s"
    return f"{said}; {minutes_text(document.minutes)} at `--rate {rate}`"


def _render_outcome(report: Report, page: Page, *, verbose: bool) -> None:
    if report.shared_files:
        files = counted(report.shared_files, "file")
        page.line(
            f"shares {files} on disk with the source, so it is no backup of it; "
            "`--link never` makes it independent:"
        )
        page.names(report.shared, most=None if verbose else _MOST_SHARED, indent=2)
    if report.taken_up_bytes:
        size = byte_text(report.taken_up_bytes)
        page.line(f"took up {size} that an earlier run had written, and that read back as recorded")
    checked = (
        f"{leaves_text(report.checked)} read back" if report.checked else "nothing to read back"
    )
    if report.sources_checked:
        count = leaves_text(report.sources_checked)
        checked += f", {count} agreed with digests on record when read"
    page.verdict(
        Cell("verified", "good") if report.verified else Cell("NOT VERIFIED", "bad"),
        f": the tree is as planned, {checked}; {duration_text(report.seconds)}",
    )
    if report.sealed_files:
        files = counted(report.sealed_files, "file")
        page.verdict(Cell("sealed", "good"), f": digests of all leaves and {files} are on record")
