"""What `doctor` prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from surgery_cli.console.page import Cell, Page
from surgery_cli.console.printable import shown_path
from surgery_cli.reports import Examination, ExaminedPlace
from surgery_cli.words.lists import listed
from surgery_cli.words.quantities import byte_text, counted, leaves_text

_SHOWN = 40
_MOST_WHYS = 3
_TONES = {"whole": "good", "damaged": "bad", "unreadable": "bad", "apart": "faint"}


def render(document: Examination, page: Page, *, verbose: bool = False) -> None:
    """The document as text: healthy things in a row as one line, each other one with what to do about it."""
    page.line(Cell(shown_path(document.root), "strong"))
    counts = [f"{count:,} {state}" for state, count in document.counts.items()]
    page.verdict(f"{listed(counts)}; {_bytes(document)}", indent=2)
    if not document.reads_data:
        page.line(
            "from metadata alone, which a chunk that is cut or flipped agrees with:"
            " `--read-data` reads every leaf",
            indent=2,
        )
    lines = list(_series(document.places, verbose=verbose))
    shown = lines if verbose else lines[:_SHOWN]
    page.line()
    for one in shown:
        _line(one, page, verbose=verbose)
    page.rest(len(lines) - len(shown), indent=2)
    page.notes(document.notes, indent=2)


def _bytes(document: Examination) -> str:
    parts = [byte_text(document.bytes)]
    if sum(row.bytes for row in document.places) > document.bytes:
        parts[0] += " (a file that several share counts once)"
    if document.dead_bytes:
        parts.append(f"{byte_text(document.dead_bytes)} of it dead in data files")
    if document.leftover_bytes:
        parts.append(f"{byte_text(document.leftover_bytes)} in leftovers")
    return ", ".join(parts)


def _series(places: Sequence[ExaminedPlace], *, verbose: bool) -> Iterator[Sequence[ExaminedPlace]]:
    """The places line by line."""
    for is_quiet, together in groupby(places, key=_is_quiet):
        rows = list(together)
        if is_quiet and not verbose:
            for _, alike in groupby(rows, key=lambda row: row.state):
                yield list(alike)
        else:
            yield from (list(alike) for _, alike in groupby(rows, key=_run_of))


def _is_quiet(row: ExaminedPlace) -> bool:
    """True if there is nothing to say of it but that it is there."""
    is_said = row.state == "apart" or not row.why
    return row.state in ("whole", "apart") and is_said and not row.todo and not row.temporary


def _run_of(row: ExaminedPlace) -> tuple[object, ...]:
    """What all that a run of ours has left has in common, and nothing else has with it: whose it is, and what to do."""
    is_of_run = row.state == "leftover" and row.of and row.todo and row.leaves is None
    return (row.state, row.of, tuple(row.why), row.todo) if is_of_run else (row.path,)


def _line(rows: Sequence[ExaminedPlace], page: Page, *, verbose: bool) -> None:
    first, size = rows[0], byte_text(sum(row.bytes for row in rows))
    state = Cell(f"{first.state:<11}", _TONES.get(first.state, "doubtful"))
    if len(rows) > 1 and not first.why:
        page.line(state, f"{_names(rows)}  {size}")
        return
    of, names = f" of {first.of}" if first.of else "", ", ".join(row.path for row in rows)
    page.line(state, f"{names}{of}  {size}{_leaves(first)}")
    page.names(first.why, most=None if verbose else _MOST_WHYS, indent=4)
    if first.temporary:
        size = byte_text(sum(first.temporary.values()))
        names = listed(list(first.temporary), 3)
        files = counted(len(first.temporary), "file")
        page.line(f"{files} without their names, {size}: {names}", indent=4)
    if first.todo:
        page.line(Cell(first.todo, "strong"), indent=4)


def _names(rows: Sequence[ExaminedPlace]) -> str:
    names = [row.path for row in rows]
    shown = ", ".join(names) if len(names) <= 4 else f"{names[0]}, {names[1]} … {names[-1]}"
    what = "steps" if all(row.step is not None for row in rows) else "of them"
    return f"{shown} ({len(names):,} {what})"


def _leaves(row: ExaminedPlace) -> str:
    if row.leaves is None:
        return ""
    if row.whole_leaves is None:
        return f", {leaves_text(row.leaves)}{_checked(row)}"
    least = "at least " if row.at_least else ""
    return f", {least}{row.whole_leaves:,} of {leaves_text(row.leaves)} all there"


def _checked(row: ExaminedPlace) -> str:
    if row.checked is None:
        return ""
    held = "were held against" if row.state == "changed" else "agree with"
    return f", {row.checked:,} {held} digests on record, {row.unchecked:,} have none"
