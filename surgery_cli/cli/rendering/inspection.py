"""What `inspect` prints: what was opened, its totals, and the tree."""

from __future__ import annotations

from typing import Final

from surgery_cli.cli.rendering import layout, series, statistics, tree
from surgery_cli.cli.rendering.series import LeafSeries
from surgery_cli.console.page import Cell, Page, Row
from surgery_cli.console.printable import shown_path
from surgery_cli.optimizer.follow.clocks import DRIVES
from surgery_cli.reports import Inspection, LeafRow, OptimizerState
from surgery_cli.words.lists import listed
from surgery_cli.words.quantities import array_text, byte_text, counted, leaves_text
from surgery_cli.words.series import folded

_MOST_ON_A_TERMINAL: Final = 60
_MOST_IN_A_PIPE: Final = 300
_MOST_FOLDED: Final = 40
"""Where leaves are more than that, lines are series of leaves, and these are so many at most."""


def render(
    document: Inspection, page: Page, *, depth: int | None = None, verbose: bool = False
) -> None:
    """The document as text; a terminal gets a tree, a pipe paths; of many leaves both get series."""
    _render_header(document, page)
    page.line()
    _render_leaves(document, page, depth, verbose=verbose)
    if document.hosts is not None:
        page.line()
        layout.render_reads(document.hosts, page)
    if document.optimizer is not None:
        _render_optimizer(document, document.optimizer, page)


def _render_optimizer(document: Inspection, states: list[OptimizerState], page: Page) -> None:
    """The states of the optimizer, then its counters and settings with what they drive."""
    page.line()
    page.line(Cell("optimizer state", "strong"))
    if document.states_in_question:
        asked = listed(document.states_in_question, 5)
        page.line(f"not known until the notes above are answered: {asked}", indent=2)
    elif not states:
        has_clocks = any(row.clock not in (None, "nothing") for row in document.leaves)
        why = "slots are not known: no params stand beside them" if has_clocks else "none"
        page.line(why if _is_whole(document) else "none among these leaves", indent=2)
    rows = []
    for state in states:
        slots = ", ".join(f"{count} {name}" for name, count in state.slots.items())
        rows.append([Cell(state.path or "."), Cell(state.family), Cell(slots)])
    page.table(rows, indent=2)
    for fix in dict.fromkeys(state.unsure for state in states if state.unsure):
        page.line(
            Cell("metadata alone does not tell the kind; for an edit, ", "doubtful"), fix, indent=2
        )
    numbers = [row for row in document.leaves if row.clock or row.hyperparameter]
    page.line()
    page.line(Cell("step counters and learning rates", "strong"))
    page.table(map(_number_row, numbers), indent=2)
    has_rate = any("learning" in (row.hyperparameter or "") for row in numbers)
    if not has_rate and _is_whole(document):
        page.line("no learning rate is stored: the training script sets it", indent=2)


def _is_whole(document: Inspection) -> bool:
    """False if patterns leave out a part of the checkpoint."""
    return document.total_leaves == document.all_leaves


def _number_row(row: LeafRow) -> list[Cell]:
    value = str(row.value)
    if not isinstance(row.value, bool | str | None):
        value = f"{row.value:,}" if isinstance(row.value, int) else f"{row.value:.6g}"
    return [Cell(row.path), Cell(value, right=True), Cell(_purpose(row), "faint")]


def _purpose(row: LeafRow) -> str:
    """What a counter drives, or what a stored setting means."""
    if row.hyperparameter is not None:
        return row.hyperparameter.replace("_", " ")
    if row.clock == "counter":
        return "counts events, drives nothing"
    if row.clock == "nothing" or row.clock is None:
        return "drives nothing in the optimizer"
    is_theirs = row.drives and row.clock != "schedule"
    driven = f" of {counted(row.drives, 'slot')}" if is_theirs else ""
    return f"drives {DRIVES[row.clock]}{driven}"


def _render_header(document: Inspection, page: Page) -> None:
    page.line(Cell(shown_path(document.checkpoint), "strong"))
    page.line(document.chosen, indent=2)
    if document.layout not in document.chosen:
        page.line(f"stored as {document.layout}", indent=2)
    count = leaves_text(document.total_leaves)
    if document.only is not None:
        looked_at = leaves_text(document.looked_at or 0)
        bad = f"bad: {document.total_leaves:,} of {looked_at}"
        good = f"nothing is bad: {looked_at} looked at"
        page.verdict(Cell(bad, "bad") if document.leaves else Cell(good, "good"), indent=2)
    elif ills := [row for row in document.leaves if row.bad]:
        style = "bad" if any(map(_is_not_finite, ills)) else "doubtful"
        page.verdict(Cell(f"bad: {len(ills):,} of {count}", style), indent=2)
    if not _is_whole(document):
        count = f"{document.total_leaves:,} of {leaves_text(document.all_leaves)}"
    sizes = [count, byte_text(document.total_bytes)]
    if document.total_stored_bytes:
        sizes.append(f"{byte_text(document.total_stored_bytes)} on disk")
    if document.parameters:
        sizes.append(counted(document.parameters, "parameter"))
    page.line(Cell(", ".join(sizes)), indent=2)
    if len(document.by_dtype) > 1:
        ordered = sorted(document.by_dtype.items(), key=lambda pair: -pair[1])
        page.line(", ".join(f"{name} {byte_text(size)}" for name, size in ordered), indent=2)
    if len(document.items) > 1:
        page.line(f"items: {listed(document.items, 5)}", indent=2)
    if document.other_items:
        page.line(f"carried along, never edited: {listed(document.other_items, 5)}", indent=2)
    if document.foreign_files:
        page.line(f"files unknown to Orbax: {listed(document.foreign_files, 5)}", indent=2)
    page.notes(document.notes, indent=2)


def _is_not_finite(row: LeafRow) -> bool:
    """True for a leaf that is bad by NaN or infinities: one without statistics is a number that is."""
    return row.statistics is None or row.statistics.non_finite > 0


def _render_leaves(document: Inspection, page: Page, depth: int | None, *, verbose: bool) -> None:
    header, is_tree = _header(document), page.is_terminal
    most = _MOST_ON_A_TERMINAL if is_tree else _MOST_IN_A_PIPE
    # every leaf is a line where no depth folds them: more than are shown need not be made to be counted
    is_long = not verbose and depth is None and len(document.leaves) > most
    lines = [] if is_long else _lines(series.single(document.leaves), depth, is_tree=is_tree)
    is_long = is_long or (len(lines) > most and not verbose)
    depth_shown = None
    if is_long:
        leaves = series.together(document.leaves)
        lines = _lines(leaves, depth, is_tree=is_tree)
        if len(lines) > _MOST_FOLDED and depth is None:
            depth_shown = tree.fitting_depth(leaves, _MOST_FOLDED)
            lines = _lines(leaves, depth_shown, is_tree=is_tree)
    row_of = _tree_row if is_tree else _path_row
    shown = lines[:most] if is_long else lines
    dispensable = _WITH_STATISTICS if header else _DISPENSABLE
    page.table(list(map(row_of, shown)), header=header, dispensable=dispensable, each=True)
    if not is_long:
        return
    page.line()
    if depth_shown is not None:
        page.hint(f"folded at depth {depth_shown}: `--depth N` shows more, a pattern too")
    if len(shown) < len(lines):
        page.rest(len(lines) - len(shown), indent=0)
    page.hint("leaves that differ in numbers alone are one line; `--verbose` lists each")


_DISPENSABLE: Final = {11: "what they are to others", 2: "sizes"}
_WITH_STATISTICS: Final = {
    9: "histogram", 8: "zeros", 4: "std", 7: "norm", 11: "what they are to others", 2: "size",
    3: "mean", 1: "type", 5: "min", 6: "max",
}  # fmt: skip
"""Columns that a narrow terminal leaves out, the first of these first; never what is wrong with values, or a digest."""


def _lines(leaves: list[LeafSeries], depth: int | None, *, is_tree: bool) -> list[tree.Line]:
    """The lines of a tree; or those of a list, where a node has one only if it stands for what is below."""
    if depth is None and not is_tree:  # in the order of the document
        return [tree.line_of(one) for one in leaves]
    return [
        line
        for line in tree.lines(leaves, depth)
        if is_tree or line.leaf is not None or line.is_folded
    ]


def _tree_row(line: tree.Line) -> Row:
    name = "  " * line.depth + line.name
    if line.leaf is not None:
        return _leaf_row(name, line.leaf)
    note = leaves_text(line.leaves) if line.is_folded else ""
    style = "strong" if line.is_folded else "faint"
    size = Cell(byte_text(line.bytes), "faint", right=True)
    return [Cell(name, style), Cell(note, "faint"), size]


def _path_row(line: tree.Line) -> Row:
    if line.leaf is not None:
        return _leaf_row(line.leaf.name or ".", line.leaf)
    size = Cell(byte_text(line.bytes), right=True)
    return [Cell(f"{line.path}/"), Cell(leaves_text(line.leaves)), size]


def _header(document: Inspection) -> list[Cell]:
    if not any(row.statistics for row in document.leaves):
        return []
    shown = [Cell(word, right=True) for word in statistics.HEADINGS[:6]]
    rest = [Cell(word) for word in statistics.HEADINGS[6:]]
    return [Cell("leaf"), Cell("type"), Cell("size", right=True), *shown, *rest]


def _leaf_row(name: str, one: LeafSeries) -> list[Cell]:
    """A leaf, or a series of them; columns for statistics are empty where there are none."""
    row, measured = one.first, statistics.cells(one.rows)
    count = f"{leaves_text(len(one.rows))} of " if len(one.rows) > 1 else ""
    has_bad_values = measured[-1].style == "bad" and measured[-1].text
    return [
        Cell(name, "bad" if has_bad_values else ""),
        Cell(count + (row.type_text or array_text(row.dtype, row.shape)), "faint"),
        Cell(byte_text(one.bytes), right=True),
        *measured,
        Cell(_role(one), "faint"),
        Cell(row.digest or "" if len(one.rows) == 1 else ""),
    ]


def _role(one: LeafSeries) -> str:
    """What leaves are to others: twins of params, clocks; and the value if known."""
    words, row = "", one.first
    if row.twin_of is not None:
        params = listed(folded(r.twin_of for r in one.rows if r.twin_of is not None), 1)
        words = f"{row.slot or 'twin'} of {params}"
    elif row.clock is not None:
        words = "clock" if row.clock == "nothing" else f"clock: {row.clock}"
    if row.value is None or len(one.rows) > 1:
        return words
    return f"{words} = {row.value}" if words else f"= {row.value!r}"
