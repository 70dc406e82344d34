"""What `rescue` prints."""

from __future__ import annotations

from collections import Counter
from typing import Final

from surgery_cli.console.page import Cell, Page
from surgery_cli.console.printable import shown_path
from surgery_cli.reports import Rescued, SavedRow
from surgery_cli.salvage.states import Proof, said_lost
from surgery_cli.words.lists import listed
from surgery_cli.words.quantities import leaves_text

_SHOWN = 40


def render(document: Rescued, page: Page, *, verbose: bool = False) -> None:
    """The document as text: what is whole in one line, what is not leaf by leaf."""
    page.line(Cell(shown_path(document.broken), "strong"))
    count = len(document.leaves)
    assumed = Counter(row.assumes for row in document.leaves if row.assumes)
    conditions = "".join(f" ({number:,} of them if {said})" for said, number in assumed.items())
    apart = f"; {said_lost(document.lost_items)}" if document.lost_items else ""
    page.verdict(
        f"{document.whole:,} of {leaves_text(count)} whole{conditions}, {document.partly:,} partly,"
        f" {document.lost:,} lost{apart}; names from {document.structure}",
        indent=2,
    )
    if document.structure_lacks:
        lacking = listed(document.structure_lacks, word="and")
        page.line(
            Cell("not the tree that was saved", "doubtful"),
            f": {lacking} are not known, and a restore into the original target may be refused;"
            " `--like` a whole step, or `--like-init`, gives them",
            indent=2,
        )
    proofs = [row.proof for row in document.leaves if row.state == "whole" and row.proof]
    for proof, words in _PROOFS.items():
        if number := proofs.count(proof):
            page.line(f"{leaves_text(number)} {words}", indent=2)
    rows = [row for row in document.leaves if verbose or row.state != "whole"]
    shown = rows if verbose else rows[:_SHOWN]
    for row in shown:
        _leaf(row, page)
    page.rest(len(rows) - len(shown), indent=2)
    for item in document.lost_items:
        page.line(Cell("lost ", "bad"), f"{item}: {item.why}", indent=2)
    if document.destination is not None:
        step = f"step '{document.destination_step}' of " if document.destination_step else ""
        page.line(
            Cell("rescued", "good"),
            f": {leaves_text(document.written)} in {step}{shown_path(document.destination)}, read back and the same"
            f"{_taken(document)}",
        )
    page.notes(document.notes, indent=2)


def _taken(document: Rescued) -> str:
    """Of how many leaves something comes from elsewhere, and whence."""
    filled = [row.filled_from for row in document.leaves if row.filled_from]
    if not filled:
        return ""
    origins = [f"'{shown_path(origin)}'" for origin in dict.fromkeys(filled)]
    return f"; of {len(filled):,} of them something is from {listed(origins, 3, word='and')}"


_PROOFS: Final[dict[Proof, str]] = {
    "digest": "with the values of a digest on record",
    "checksum": "covered by checksums",
    "decodes": "decoded, with nothing to compare their values with",
}


def _leaf(row: SavedRow, page: Page) -> None:
    said = {"whole": "whole", "partly": f"{row.share:.1%} there", "lost": "lost"}[row.state]
    tone = {"whole": "good", "partly": "doubtful", "lost": "bad"}[row.state]
    type_text = f" {row.type_text}" if row.type_text else ""
    why = f": {row.why}" if row.why else f" ({row.proof})" if row.proof else ""
    page.line(Cell(f"{said} ", tone), f"{row.path}{type_text}{why}", indent=2)
    if any(row.missing):
        page.line(f"missing {listed(row.missing, 4)}", indent=4)
    if row.filled_from:
        as_there = f", where it is {row.filled_type}" if row.filled_type else ""
        page.line(f"taken from {row.filled_from}{as_there}", indent=4)
