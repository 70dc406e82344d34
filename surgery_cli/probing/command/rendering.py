"""What `probe` prints: a row for each module call, and the first place where a value stops being finite."""

from __future__ import annotations

from surgery_cli.console.page import Cell, Page
from surgery_cli.console.printable import shown_path
from surgery_cli.probing.interface.documents import (
    FirstNonFinite,
    Probe,
    ProbeComparison,
    ProbeOperation,
    ProbePair,
    ProbeSite,
    ProbeStatistics,
)
from surgery_cli.words.quantities import array_text, byte_text, counted, leaves_text, number_text

_HEADINGS = ("mean", "std", "min", "max", "zeros", "")


def render(document: Probe, page: Page, *, verbose: bool = False) -> None:
    """The document as text."""
    _render_head(document, page)
    has_statistics = any(site.statistics is not None for site in document.sites)
    has_gradients = any(site.gradient is not None for site in document.sites)
    header = ["module", "class", "shape", *(_HEADINGS if has_statistics else ())]
    if has_gradients:
        header.insert(-1, "gradient rms")
    rows = [_row(site, has_statistics, has_gradients) for site in document.sites]
    page.line()
    page.table(rows, header=[Cell(text, "faint") for text in header], each=True)
    page.line()
    if document.params:
        _render_params(document, page)
    page.remarks("not seen", document.unseen)
    page.notes(document.notes)
    _render_verdict(document, page)
    for name in document.files:
        page.line("wrote ", Cell(name, "strong"))
    if verbose:
        page.line(f"{leaves_text(document.leaves_read)} read, {byte_text(document.bytes_read)}")


def _render_head(document: Probe, page: Page) -> None:
    page.line(
        Cell(document.model, "strong"), " on ", Cell(shown_path(document.checkpoint), "strong")
    )
    page.line(f"opened {document.chosen}; inputs {', '.join(document.inputs) or 'none'}", indent=2)
    places = ", ".join(f"{name} at '{place}'" for name, place in document.bound.items())
    page.line(f"found {places or 'no variables'}", indent=2)


def _render_params(document: Probe, page: Page) -> None:
    rows: list[list[Cell | str]] = [
        [
            Cell(param.path, "strong"),
            array_text(param.dtype, param.shape),
            *statistics_cells(param.gradient),
            Cell(number_text(param.gradient.rms), right=True),
            Cell(", ".join([*param.marks, *_bad_counts(param.gradient)]), "bad"),
        ]
        for param in document.params
    ]
    header = ["gradient of", "shape", *_HEADINGS[:-1], "rms", ""]
    page.table(rows, header=[Cell(text, "faint") for text in header], each=True)
    if document.loss is not None:
        page.line(f"loss {number_text(document.loss)}", indent=2)
    page.line()


def _row(site: ProbeSite, has_statistics: bool, has_gradients: bool) -> list[Cell | str]:
    loops = "".join(f"{length} × " for length in site.iterations)
    shape = loops + array_text(site.dtype, site.shape)
    kind = site.kind if site.role == "out" else f"{site.role}: {site.kind}"
    cells: list[Cell | str] = [Cell(site.name, "strong"), kind, shape]
    if has_statistics:
        cells += statistics_cells(site.statistics)
        if has_gradients:
            rms = number_text(site.gradient.rms) if site.gradient is not None else ""
            cells.append(Cell(rms, right=True))
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
    if site.statistics is not None:
        words += _bad_counts(site.statistics)
    if site.gradient is not None:
        words += [f"gradient {text}" for text in _bad_counts(site.gradient)]
    if not site.ran:
        words.append("not taken")
    return words


def _bad_counts(found: ProbeStatistics) -> list[str]:
    counts = ((found.nan, "NaN"), (found.inf, "infinite"))
    return [f"{count:,} {name}" for count, name in counts if count]


def _render_verdict(document: Probe, page: Page) -> None:
    first = document.first_non_finite
    if document.comparison is not None:
        _render_comparison(document.comparison, page)
    is_alone = document.comparison is None or document.comparison.other_first_non_finite is None
    if first is not None:
        if document.comparison is not None:
            page.verdict("here:")
        render_first(first, page)
    elif any(site.statistics is not None for site in document.sites):
        page.verdict(
            Cell("every value is finite" if is_alone else "here every value is finite", "good")
        )
    else:
        page.line(f"{counted(len(document.sites), 'call')}, from shapes alone")


def _render_comparison(found: ProbeComparison, page: Page) -> None:
    page.line(
        "against ",
        Cell(found.other_model, "strong"),
        " on ",
        Cell(shown_path(found.other), "strong"),
    )
    _render_pairs("module", [*found.sites, *found.outputs], found.first_different, page)
    if found.gradients:
        page.line()
        _render_pairs("gradient at", found.gradients, found.first_different_gradient, page)
    page.remarks("only here", found.only_in_a)
    page.remarks("only there", found.only_in_b)
    page.line()
    page.verdict(
        Cell(found.why, "good" if found.agrees else "bad"),
        f" (tolerance {number_text(found.tolerance)})",
    )
    if found.first_different is not None:
        page.line(
            "the first call that differs is ", Cell(found.first_different, "strong"), indent=2
        )
    if found.first_different_gradient is not None:
        page.line(
            "backwards, the first gradient that differs is at ",
            Cell(found.first_different_gradient, "strong"),
            indent=2,
        )
    if found.other_first_non_finite is not None:
        page.verdict("there:")
        render_first(found.other_first_non_finite, page)


def _render_pairs(title: str, pairs: list[ProbePair], first: str | None, page: Page) -> None:
    header = [title, "there", "class", "difference", "largest", "rms here", "rms there", ""]
    rows = [_pair_row(pair, pair.a == first) for pair in pairs]
    page.table(rows, header=[Cell(text, "faint") for text in header], each=True)


def _pair_row(row: ProbePair, is_first: bool) -> list[Cell | str]:
    numbers = (row.relative, row.max_abs, row.rms_a, row.rms_b)
    return [
        Cell(row.a, "strong"),
        row.b if row.b != row.a else "",
        row.kind,
        *(Cell("0" if n == 0 else number_text(n), right=True) for n in numbers),
        Cell("first that differs" if is_first else "", "doubtful"),
    ]


def render_first(first: FirstNonFinite, page: Page) -> None:
    """Where the first non-finite value is seen, where it arises, and what was bad before."""
    if first.role == "loss":
        page.verdict(
            Cell("the loss is not finite: ", "bad"), Cell("NaN" if first.nan else "inf", "strong")
        )
        page.line("every output of the model is finite: the loss itself made it", indent=2)
        return
    counts = [f"{first.nan:,} NaN"] if first.nan else []
    counts += [f"{first.inf:,} infinite"] if first.inf else []
    what = "gradient" if first.role == "gradient" else "value"
    page.verdict(
        Cell(f"first non-finite {what}: ", "bad"),
        Cell(first.where, "strong"),
        f" {first.kind}" if first.kind else "",
        _iteration(first.iteration),
        f", {', '.join(counts)}" if counts else "",
    )
    if first.role == "in" and not first.bad_inputs:
        page.line("it arrives there: the code that calls this module made it", indent=2)
    for operation, verb in ((first.origin, "infinite first in"), (first.operation, "arises in")):
        if operation is not None:
            _render_operation(operation, verb, page)
    for text in first.bad_leaves:
        page.line("already bad in the checkpoint: ", Cell(text, "strong"), indent=2)
    for text in first.bad_inputs:
        page.line("already bad: ", Cell(text, "strong"), indent=2)
    if first.role == "gradient":
        page.line("every value on the way forward is finite", indent=2)
    elif not first.bad_leaves and not first.bad_inputs:
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
        file, _, rest = operation.line.partition(".py:")
        page.line(f"{shown_path(f'{file}.py')}:{rest}", indent=4)


def _iteration(iteration: tuple[int, ...]) -> str:
    if not iteration:
        return ""
    return f", iteration {', '.join(map(str, iteration))} (from 0)"
