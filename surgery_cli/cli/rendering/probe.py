"""What `probe` prints: a row for each module call, and the first place where a value stops being finite."""

from __future__ import annotations

from surgery_cli.cli.rendering.page import Cell, Page
from surgery_cli.cli.rendering.words import byte_text, counted, leaves_text, number_text
from surgery_cli.reports import FirstNonFinite, Probe, ProbeOperation, ProbeSite, ProbeStatistics

_HEADINGS = ("mean", "std", "min", "max", "zeros", "")


def render(document: Probe, page: Page, *, verbose: bool = False) -> None:
    """The document as text."""
    _render_head(document, page)
    has_statistics = any(site.statistics is not None for site in document.sites)
    header = ["module", "class", "shape", *(_HEADINGS if has_statistics else ())]
    rows = [_row(site, has_statistics) for site in document.sites]
    page.line()
    page.table(rows, header=[Cell(text, "faint") for text in header])
    page.line()
    for text in document.unseen:
        page.line(Cell("not seen: ", "doubtful"), text)
    for text in document.notes:
        page.line(f"note: {text}")
    _render_verdict(document, page)
    if verbose:
        page.line(f"{leaves_text(document.leaves_read)} read, {byte_text(document.bytes_read)}")


def _render_head(document: Probe, page: Page) -> None:
    page.line(Cell(document.model, "strong"), " on ", Cell(document.checkpoint, "strong"))
    page.line(f"opened {document.chosen}; inputs {', '.join(document.inputs) or 'none'}", indent=2)
    places = ", ".join(f"{name} at '{place}'" for name, place in document.bound.items())
    page.line(f"found {places or 'no variables'}", indent=2)


def _row(site: ProbeSite, has_statistics: bool) -> list[Cell | str]:
    loops = "".join(f"{length} × " for length in site.iterations)
    shape = f"{loops}{site.dtype}[{','.join(map(str, site.shape))}]"
    kind = site.kind if site.role == "out" else f"{site.role}: {site.kind}"
    cells: list[Cell | str] = [Cell(site.name, "strong"), kind, shape]
    if has_statistics:
        cells += statistics_cells(site.statistics)
        cells.append(Cell(", ".join(_marks(site)), "bad"))
    return cells


def statistics_cells(found: ProbeStatistics | None) -> list[Cell]:
    """Mean, standard deviation, range and share of zeros."""
    if found is None:
        return [Cell("")] * 5
    numbers = (found.mean, found.std, found.min, found.max)
    cells = [Cell(number_text(number), right=True) for number in numbers]
    return [*cells, Cell(f"{found.zeros:.1%}" if found.zeros else "0", right=True)]


def _marks(site: ProbeSite) -> list[str]:
    words = list(site.marks)
    if site.statistics is not None and site.statistics.nan:
        words.append(f"{site.statistics.nan:,} NaN")
    if site.statistics is not None and site.statistics.inf:
        words.append(f"{site.statistics.inf:,} infinite")
    if not site.ran:
        words.append("not taken")
    return words


def _render_verdict(document: Probe, page: Page) -> None:
    first = document.first_non_finite
    if first is not None:
        render_first(first, page)
    elif any(site.statistics is not None for site in document.sites):
        page.line(Cell("every value is finite", "good"))
    else:
        page.line(f"{counted(len(document.sites), 'call')}, from shapes alone")


def render_first(first: FirstNonFinite, page: Page) -> None:
    """Where the first non-finite value is seen, where it arises, and what was bad before."""
    counts = [f"{first.nan:,} NaN"] if first.nan else []
    counts += [f"{first.inf:,} infinite"] if first.inf else []
    page.line(
        Cell("first non-finite value: ", "bad"),
        Cell(first.where, "strong"),
        f" {first.kind}" if first.kind else "",
        _iteration(first.iteration),
        f", {', '.join(counts)}" if counts else "",
    )
    if first.role == "in":
        page.line("it arrives there: the code that calls this module made it", indent=2)
    for operation, verb in ((first.origin, "infinite first in"), (first.operation, "arises in")):
        if operation is not None:
            _render_operation(operation, verb, page)
    for text in first.bad_leaves:
        page.line("already bad in the checkpoint: ", Cell(text, "strong"), indent=2)
    for text in first.bad_inputs:
        page.line("already bad: ", Cell(text, "strong"), indent=2)
    if not first.bad_leaves and not first.bad_inputs:
        page.line("the inputs and every leaf that was read are finite", indent=2)


def _render_operation(operation: ProbeOperation, verb: str, page: Page) -> None:
    bad = {"nan": ", from an operand with NaN", "inf": ", from an operand with infinities"}
    page.line(
        f"{verb} ",
        Cell(operation.name, "strong"),
        f" → {operation.result}{_iteration(operation.iteration)}{bad.get(operation.from_bad, '')}",
        indent=2,
    )
    if operation.line:
        page.line(operation.line, indent=4)


def _iteration(iteration: tuple[int, ...]) -> str:
    if not iteration:
        return ""
    return f", iteration {', '.join(map(str, iteration))} (from 0)"
