"""What `diff` prints."""

from __future__ import annotations

from surgery_cli.console.page import Cell, Page, Row
from surgery_cli.console.printable import shown_path
from surgery_cli.reports import Change, Difference
from surgery_cli.words.lists import listed
from surgery_cli.words.quantities import leaves_text, number_text

_MOST_LINES = 100


def render(document: Difference, page: Page, *, verbose: bool = False) -> None:
    """The document as text: what differs, leaf by leaf, then the count of what agrees."""
    for side, path, chosen in (
        ("a ", document.a, document.chosen_a),
        ("b ", document.b, document.chosen_b),
    ):
        page.line(Cell(side, "faint"), shown_path(path))
        page.line(chosen, indent=2)
    most = _MOST_LINES if page.is_terminal and not verbose else None
    for mark, paths in (("only in a", document.only_in_a), ("only in b", document.only_in_b)):
        if paths:
            page.line()
            page.line(Cell(f"{mark}: {leaves_text(len(paths))}", "strong"))
            page.names([path or "." for path in paths], most=most, indent=2)
    if document.changed:
        page.line()
        page.line(Cell(f"differ: {leaves_text(len(document.changed))}", "strong"))
        shown = document.changed[:most]
        page.table([_row(change) for change in shown], indent=2)
        page.rest(len(document.changed) - len(shown), indent=2)
    page.line()
    _render_agreement(document, page)


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
    scope = "structure" if document.structure_only else f"structure and values{_within(document)}"
    differing = len(document.only_in_a) + len(document.only_in_b) + len(document.changed)
    reference = ""
    if document.equal_by_reference:
        reference = f" ({_of_them(document)}the same stored bytes, not read)"
    equal = f"{leaves_text(document.equal)} equal in {scope}{reference}"
    if differing:
        verb = "differs" if differing == 1 else "differ"
        page.line(Cell(f"{leaves_text(differing)} {verb}", "bad"), f"; {equal}")
    else:
        page.line(Cell("no difference", "good"), f": {equal}")
    if document.not_compared:
        page.line(Cell(f"not compared: {listed(document.not_compared, 5)}", "faint"))


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
