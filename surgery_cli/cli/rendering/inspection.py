"""What `inspect` prints: what was opened, its totals, and the tree."""

from __future__ import annotations

from typing import Final

from surgery_cli.cli.rendering import layout, statistics, tree
from surgery_cli.console.page import Cell, Page
from surgery_cli.console.printable import shown_path
from surgery_cli.optimizer.follow.clocks import DRIVES
from surgery_cli.reports import Inspection, LeafRow, OptimizerState
from surgery_cli.words.lists import listed
from surgery_cli.words.quantities import array_text, byte_text, counted, leaves_text

_MOST_LINES: Final = 300


def render(document: Inspection, page: Page, *, depth: int | None = None) -> None:
    """The document as text; a terminal gets a tree that folds where it would be too long, a pipe every path."""
    _render_header(document, page)
    page.line()
    if page.is_terminal:
        _render_tree(document, page, depth)
    else:
        _render_paths(document, page, depth)
    if document.hosts is not None:
        page.line()
        layout.render_reads(document.hosts, page)
    if document.optimizer is not None:
        _render_optimizer(document, document.optimizer, page)


def _render_optimizer(document: Inspection, states: list[OptimizerState], page: Page) -> None:
    """The states of the optimizer, then its counters and settings with what they drive."""
    page.line()
    page.line(Cell("optimizer state", "strong"))
    if not states:
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
    return [Cell(row.spelling or row.path), Cell(value, right=True), Cell(_purpose(row), "faint")]


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
    page.remarks("note", document.notes, indent=2)


def _render_tree(document: Inspection, page: Page, depth: int | None) -> None:
    folded, header = depth, _header(document)
    if depth is None:
        folded = tree.fitting_depth(document.leaves, _MOST_LINES)
    rows: list[list[Cell]] = []
    for line in tree.lines(document.leaves, folded):
        name = "  " * line.depth + line.name
        if line.leaf is not None:
            rows.append([Cell(name), *_leaf_cells(line.leaf, bool(header))])
        else:
            note = leaves_text(line.leaves) if line.is_folded else ""
            style = "strong" if line.is_folded else "faint"
            size = Cell(byte_text(line.bytes), "faint", right=True)
            rows.append([Cell(name, style), Cell(note, "faint"), size])
    page.table(rows, header=header)
    if depth is None and folded is not None:
        page.line()
        page.line(
            Cell(
                f"folded at depth {folded}: `--depth N` shows more, and so does a pattern", "faint"
            )
        )


def _render_paths(document: Inspection, page: Page, depth: int | None) -> None:
    header = _header(document)
    if depth is None:
        rows = [_path_row(row, bool(header)) for row in document.leaves]
    else:
        rows = []
        for line in tree.lines(document.leaves, depth):
            if line.leaf is not None:
                rows.append(_path_row(line.leaf, bool(header)))
            elif line.is_folded:
                size = Cell(byte_text(line.bytes), right=True)
                rows.append([Cell(f"{line.path}/"), Cell(leaves_text(line.leaves)), size])
    page.table(rows, header=header)


def _path_row(row: LeafRow, has_statistics: bool) -> list[Cell]:
    return [Cell(row.spelling or row.path or "."), *_leaf_cells(row, has_statistics)]


def _header(document: Inspection) -> list[Cell]:
    if not any(row.statistics for row in document.leaves):
        return []
    shown = [Cell(word, right=True) for word in statistics.HEADINGS[:6]]
    rest = [Cell(word) for word in statistics.HEADINGS[6:]]
    return [Cell("leaf"), Cell("type"), Cell("size", right=True), *shown, *rest]


def _leaf_cells(row: LeafRow, has_statistics: bool) -> list[Cell]:
    """What stands behind a leaf's name; columns for statistics only where some leaf has any."""
    cells = [
        Cell(row.type_text or array_text(row.dtype, row.shape), "faint"),
        Cell(byte_text(row.bytes), right=True),
    ]
    if has_statistics:
        cells += statistics.cells(row)
    return [*cells, Cell(_role(row), "faint"), Cell(row.digest or "")]


def _role(row: LeafRow) -> str:
    """What the leaf is to others: a twin of a param, a clock; and its value if known."""
    words = ""
    if row.twin_of is not None:
        words = f"{row.slot or 'twin'} of {row.twin_of}"
    elif row.clock is not None:
        words = "clock" if row.clock == "nothing" else f"clock: {row.clock}"
    if row.value is None:
        return words
    return f"{words} = {row.value}" if words else f"= {row.value!r}"
