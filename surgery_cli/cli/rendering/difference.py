"""What `diff` prints."""

from __future__ import annotations

from surgery_cli.cli.rendering.page import Cell, Page, Row
from surgery_cli.cli.rendering.words import leaves_text, listed, number_text, shown_path
from surgery_cli.reports import Change, Difference

_MOST_LINES = 100


def render(document: Difference, page: Page, *, verbose: bool = False) -> None:
    """The document as text: what differs, leaf by leaf, then the count of what agrees."""
    for side, path, chosen in (
        ("a ", document.a, document.chosen_a),
        ("b ", document.b, document.chosen_b),
    ):
        page.line(Cell(side, "faint"), shown_path(path))
        page.line(chosen, indent=2)
    is_cut = page.is_terminal and not verbose
    for mark, paths in (("only in a", document.only_in_a), ("only in b", document.only_in_b)):
        if paths:
            page.line()
            page.line(Cell(f"{mark}: {leaves_text(len(paths))}", "strong"))
            _render_paths(paths, page, is_cut=is_cut)
    if document.changed:
        page.line()
        page.line(Cell(f"differ: {leaves_text(len(document.changed))}", "strong"))
        shown = document.changed[:_MOST_LINES] if is_cut else document.changed
        page.table([_row(change) for change in shown], indent=2)
        _render_rest(len(document.changed) - len(shown), page)
    page.line()
    _render_agreement(document, page)


def _render_paths(paths: list[str], page: Page, *, is_cut: bool) -> None:
    shown = paths[:_MOST_LINES] if is_cut else paths
    for path in shown:
        page.line(path or ".", indent=2)
    _render_rest(len(paths) - len(shown), page)


def _render_rest(count: int, page: Page) -> None:
    if count:
        page.line(Cell(f"and {count:,} more (`--verbose` lists them)", "faint"), indent=2)


def _row(change: Change) -> Row:
    if change.what != "values":
        return (change.path or ".", Cell(change.what, "faint"), f"{change.a} → {change.b}")
    count = largest = relative = ""
    if change.differing is not None and change.size is not None:
        count = f"{change.differing:,} of {change.size:,}"
    if change.max_abs is not None:
        place = f" at [{','.join(map(str, change.where))}]" if change.where else ""
        largest = f"by up to {number_text(change.max_abs)}{place}"
    if change.max_rel is not None:
        relative = f"relative {number_text(change.max_rel)}"
    values = f"{change.a} → {change.b}" if change.a != change.b else ""
    return (change.path or ".", Cell("values", "faint"), values, count, largest, relative)


def _render_agreement(document: Difference, page: Page) -> None:
    scope = "structure" if document.structure_only else "structure and values"
    differing = len(document.only_in_a) + len(document.only_in_b) + len(document.changed)
    reference = ""
    if document.equal_by_reference:
        reference = f" ({document.equal_by_reference:,} are the same stored bytes, not read)"
    equal = f"{leaves_text(document.equal)} equal in {scope}{reference}"
    if differing:
        verb = "differs" if differing == 1 else "differ"
        page.line(Cell(f"{leaves_text(differing)} {verb}", "bad"), f"; {equal}")
    else:
        page.line(Cell("no difference", "good"), f": {equal}")
    if document.not_compared:
        page.line(Cell(f"not compared: {listed(document.not_compared)}", "faint"))
