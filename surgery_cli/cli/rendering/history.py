"""What `log` prints."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from surgery_cli.console.page import Cell, Page, Row
from surgery_cli.console.printable import shown_path
from surgery_cli.reports import History, HistoryEntry
from surgery_cli.words.lists import listed
from surgery_cli.words.quantities import leaves_text

_DONE = {
    "edit": "edited",
    "copy": "copied",
    "rescue": "rescued",
    "seal": "sealed",
    "seal anew": "sealed anew, where an earlier digest did not hold",
}

_SAID_ELSEWHERE = ("edits", "sources")


def render(document: History, page: Page) -> None:
    """The document as text: a paragraph for each run, the latest first."""
    page.line(Cell(shown_path(document.checkpoint), "strong"))
    page.line(document.chosen, indent=2)
    if not document.entries:
        page.line()
        page.line(
            f"nothing is on record: '{shown_path(document.record)}' is not there, so nothing says that a run of"
            " `surgery` wrote or sealed this"
        )
    for entry in document.entries:
        page.line()
        _render_entry(entry, document, page)


def _render_entry(entry: HistoryEntry, document: History, page: Page) -> None:
    page.line(
        Cell(f"{entry.number}  ", "faint"),
        Cell(_DONE[entry.kind], "strong"),
        f"  {_moment(entry.written)}",
        Cell(f"  surgery {entry.surgery}", "faint"),
    )
    if entry.items:
        page.line(f"of {listed(map(repr, entry.items))} alone", indent=3)
    if entry.kind in ("edit", "copy", "rescue"):
        page.line(f"from {shown_path(entry.address or entry.source)}", indent=3)
        page.line(Cell(f"fingerprint {entry.source_fingerprint}", "faint"), indent=5)
    for name, fingerprint in entry.donors.items():
        place = entry.plan.get("sources", {}).get(name, name)
        called = "" if place == name else f"{name}: "
        page.line(f"and {called}{shown_path(place)}", indent=3)
        page.line(Cell(f"fingerprint {fingerprint}", "faint"), indent=5)
    page.table(_plan_rows(entry.plan), indent=3)
    if outcome := _outcome(entry):
        page.line(outcome, indent=3)
    if entry.draft:
        page.line(Cell(f"draft {entry.draft}", "faint"), indent=3)
    if entry.not_here:
        page.line(Cell("not what stands here", "bad"), f": {entry.not_here}", indent=3)
    if entry.undoable:
        at = shown_path(document.address)
        is_named = len(entry.items) != 1 or at.endswith(f"/{entry.items[0]}")
        chosen = [] if is_named else ["--item", entry.items[0]]
        command = shlex.join(["surgery", "plan", at, *chosen, "--inverse"])
        page.line(f"`{command}` prints the plan that undoes it", indent=3)


def _outcome(entry: HistoryEntry) -> str:
    said = []
    if entry.rescued_leaves:
        said.append(f"{leaves_text(entry.rescued_leaves)} rescued")
    if entry.written_leaves:
        read_back = f", {entry.read_back:,} read back" if entry.read_back else ""
        how = "filled" if entry.kind == "rescue" else f"made or moved{read_back}"
        said.append(f"{leaves_text(entry.written_leaves)} {how}")
    if entry.removed_leaves:
        said.append(f"{leaves_text(entry.removed_leaves)} removed")
    if entry.sealed and entry.kind != "seal":
        said.append(f"sealed {_moment(entry.sealed)}")
    return "; ".join(said)


def _plan_rows(plan: Mapping[str, Any]) -> Iterator[Row]:
    """A row for every edit of a recorded plan, in the plan's own words: it may be of another version."""
    for edit in plan.get("edits", []):
        fields = {key: value for key, value in edit.items() if key not in ("op", "at")}
        yield (Cell(str(edit.get("op", "")), "strong"), _at(edit.get("at", [])), _words(fields))
    for key, value in plan.items():
        if value and key not in _SAID_ELSEWHERE:
            said = _words(value) if isinstance(value, dict) else _value(value)
            yield (Cell(key, "strong"), "", said)


def _at(patterns: Any) -> str:
    return listed(map(str, patterns)) if isinstance(patterns, list) else str(patterns)


def _words(fields: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {_value(value)}" for name, value in fields.items())


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + _words(value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _moment(written: str) -> str:
    """A time on record, for people: `2026-11-22 10:11:12 UTC`."""
    return written.replace("T", " ").removesuffix("+00:00") + (
        " UTC" if written.endswith("+00:00") else ""
    )
