"""What `diff` prints."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

from surgery_cli.cli.rendering.series import (
    MOST_ROWS,
    count_of,
    render_paths,
    render_rest,
    rows_of,
)
from surgery_cli.console.page import Cell, Page, Row
from surgery_cli.console.printable import shown_path
from surgery_cli.reports import Change, Difference
from surgery_cli.words.lists import listed, no_leaf_in_both
from surgery_cli.words.quantities import counted, leaves_text, number_text
from surgery_cli.words.series import Series


def render(document: Difference, page: Page, *, verbose: bool = False) -> None:
    """The document as text: what differs, leaf by leaf, then the count of what agrees."""
    for side, path, chosen in (
        ("a ", document.a, document.chosen_a),
        ("b ", document.b, document.chosen_b),
    ):
        page.line(Cell(side, "faint"), shown_path(path))
        page.line(chosen, indent=2)
    for mark, paths in (("only in a", document.only_in_a), ("only in b", document.only_in_b)):
        if paths:
            page.line()
            page.line(Cell(f"{mark}: {leaves_text(len(paths))}", "strong"))
            render_paths(paths, page, verbose=verbose, indent=2)
    if document.changed:
        page.line()
        page.line(Cell(f"differ: {_counted(document.changed)}", "strong"))
        found = rows_of(document.changed, lambda change: change.path or ".", _said, verbose=verbose)
        shown = found if verbose else found[:MOST_ROWS]
        has_values_alone = all(change.what == "values" for change in document.changed)
        dispensable = _OF_VALUES if has_values_alone else _DISPENSABLE
        page.table(map(_row, shown), indent=2, dispensable=dispensable, each=True)
        render_rest(page, found, shown, indent=2)
    page.line()
    _render_agreement(document, page)


_DISPENSABLE: Final = {6: "relative differences", 4: "how many values", 1: "what differs"}
"""Columns that a narrow terminal leaves out, the first of these first."""
_OF_VALUES: Final = {**_DISPENSABLE, 3: "the values there"}
"""Beside other dtypes and shapes, which stand in the same column, that stays."""


def _said(change: Change) -> Hashable:
    """What leaves of one series have in common."""
    return change.what if change.what == "values" else (change.what, change.a, change.b)


def _row(one: Series) -> Row:
    """A leaf, or a series of them: of all their values, how many differ, and how far the furthest."""
    changes: list[Change] = one.members
    first = changes[0]
    name, kind, leaves = one.name, Cell(first.what, "faint"), count_of(one)
    if first.what != "values":
        return (name, kind, leaves, f"{first.a} → {first.b}")
    values = count = largest = relative = ""
    counts = [
        (c.differing, c.size) for c in changes if c.differing is not None and c.size is not None
    ]
    if counts:
        differing, size = map(sum, zip(*counts, strict=True))
        count = f"{differing:,} of {size:,}"
    furthest = max((c.max_abs for c in changes if c.max_abs is not None), default=None)
    if furthest is not None:
        place = (
            f" at [{','.join(map(str, first.where))}]" if first.where and len(changes) == 1 else ""
        )
        largest = f"by up to {number_text(furthest)}{place}"
    ratio = max((c.max_rel for c in changes if c.max_rel is not None), default=None)
    if ratio is not None:
        relative = f"relative {number_text(ratio)}"
    if len(changes) == 1 and first.a != first.b:
        values = f"{first.a} → {first.b}"
    return (name, kind, leaves, values, count, largest, relative)


def _render_agreement(document: Difference, page: Page) -> None:
    scope = "structure" if document.structure_only else f"structure and values{_within(document)}"
    alone = len(document.only_in_a) + len(document.only_in_b)
    differing = alone + len(document.changed)
    reference = ""
    if document.equal_by_reference:
        reference = f" ({_of_them(document)}the same stored bytes, not read)"
    equal = f"{leaves_text(document.equal)} equal in {scope}{reference}"
    if differing:
        verb = "differs" if differing == 1 else "differ"
        page.verdict(Cell(f"{_counted(document.changed, alone)} {verb}", "bad"), f"; {equal}")
    else:
        page.verdict(Cell("no difference", "good"), f": {equal}")
    if document.not_named:
        page.line(
            Cell(f"not compared: {leaves_text(document.not_named)} that no pattern names", "faint")
        )
    if document.not_compared:
        page.line(Cell(f"not compared: {listed(document.not_compared, 5)}", "faint"))
    for side, items in (("a", document.items_only_in_a), ("b", document.items_only_in_b)):
        if items:
            page.line(Cell(f"only {side} has {listed(items, 5)}", "doubtful"))
    if document.items_apart:
        page.line(Cell(no_leaf_in_both(map(shown_path, document.items_apart)), "doubtful"))


def _counted(changes: Sequence[Change], alone: int = 0) -> str:
    """How many leaves differ, those included that one side has ``alone``; nodes that are other containers are none."""
    nodes = sum(change.what == "container" for change in changes)
    leaves = len(changes) - nodes + alone
    parts = [counted(nodes, "node")] if nodes else []
    return listed([*parts, *([leaves_text(leaves)] if leaves or not nodes else [])], word="and")


def _within(document: Difference) -> str:
    """What is let be."""
    given = {"atol": document.atol, "rtol": document.rtol}
    said = listed((f"`--{name} {limit:g}`" for name, limit in given.items() if limit), word="and")
    return f" within {said}" if said else ""


def _of_them(document: Difference) -> str:
    """How many of the leaves that are equal; nothing where it is all of them."""
    count = document.equal_by_reference
    if count == document.equal:
        return ""
    return f"{count:,} of them {'is' if count == 1 else 'are'} "
