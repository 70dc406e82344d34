"""What `derive` prints: the plan with what it rests on, and the summary beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from surgery_cli.console.page import Cell, Page
from surgery_cli.console.printable import escaped, shown_path
from surgery_cli.planning import yaml_of
from surgery_cli.reports import Derivation, Gap, PairRow
from surgery_cli.words.quantities import byte_text, counted, leaves_text

_MOST_ROWS: Final = 40
_NUMBERS: Final = re.compile(r"(?<=:)\n(?: *- -?[0-9]+\n)+")


def plan_text(document: Derivation) -> str:
    """The plan as YAML, with a line above each edit for every pair, and for what is left open."""
    lines = [f"# {line}" for line in _head(document)]
    lines.append("edits:")
    if not document.plan["edits"]:
        lines[-1] = "edits: []"
    told: set[int] = set()
    asserted = len(document.plan["edits"]) - len(document.gaps)
    for n, (edit, rows) in enumerate(zip(document.plan["edits"], document.steps, strict=True)):
        if n >= asserted:
            lines.append(f"  # {'; '.join(_open(document.gaps[n - asserted]))}")
        for row in rows:
            if row not in told:
                lines.append(f"  # {_said(document.pairs[row])}")
                told.add(row)
        lines += [f"  {line}" for line in _on_one_line(yaml_of([edit])).splitlines()]
    return "\n".join(escaped(line) for line in lines) + "\n"


def _on_one_line(text: str) -> str:
    """YAML, with lists of numbers as `[2, 0, 1]`."""
    return _NUMBERS.sub(
        lambda found: f" [{', '.join(re.findall(r'- (-?[0-9]+)', found[0]))}]\n", text
    )


def _head(document: Derivation) -> Iterator[str]:
    yield f"{document.a} to the tree of {document.b}, by `surgery derive`"
    yield _counts(document)
    yield from (f"note: {note.line}" for note in document.notes)


def _counts(document: Derivation) -> str:
    sure = sum(row.leaves for row in document.pairs if row.certainty == "sure")
    likely = sum(row.leaves for row in document.pairs if row.certainty == "likely")
    parts = [f"{leaves_text(sure)} sure", f"{likely:,} likely"]
    if document.same:
        parts.append(f"{document.same:,} the same")
    parts.append(counted(len(document.gaps), "gap"))
    return ", ".join(parts)


def _said(row: PairRow) -> str:
    """A pair on one line."""
    how = f" ({', '.join(row.operations)})" if row.operations else ""
    return f"{row.certainty}: {row.from_} → {row.to}{how}: {', '.join(row.why)}"


def _open(gap: Gap) -> Iterator[str]:
    each = [gap.type] if gap.type else []
    if gap.leaves > gap.nodes:
        each = [leaves_text(gap.leaves // gap.nodes)]
    if gap.nodes > 1:
        each = [f"{gap.nodes:,} nodes", *(f"{text} each" for text in each)]
    kind = f" ({', '.join(each)})" if each else ""
    yield f"gap: {gap.path}{kind} {gap.what}"
    if gap.perhaps:
        yield f"perhaps {', '.join(gap.perhaps)}"
    if gap.fix:
        yield gap.fix


def render(document: Derivation, page: Page, *, verbose: bool = False) -> None:
    """What the plan rests on, what is left open, and what to do next."""
    page.line(shown_path(document.a), " → the tree of ", shown_path(document.b))
    for side, chosen in (("A", document.chosen_a), ("B", document.chosen_b)):
        if chosen:
            page.line(f"{side}: {chosen}", indent=2)
    page.line(_values(document), indent=2)
    page.line()
    page.line(Cell(_counts(document), "good" if document.is_whole else "bad"))
    doubtful = [_said(row) for row in document.pairs if row.certainty != "sure"]
    page.names(doubtful, most=None if verbose else _MOST_ROWS, indent=2)
    gaps = ["; ".join(_open(gap)) for gap in document.gaps]
    page.names(gaps, most=None if verbose else _MOST_ROWS, indent=2)
    page.notes(document.notes)
    page.line()
    page.line(_next(document))


def _values(document: Derivation) -> str:
    read = f"{byte_text(document.bytes_read)} of values read"
    if document.values == "compared":
        return f"{read}: what is the same on both sides is sure"
    if document.values == "nothing in common":
        return f"{read}, which have nothing in common: names and shapes alone tell (`--values` reads all)"
    return "no values read: names and shapes alone tell"


def _next(document: Derivation) -> str:
    if not document.plan["edits"]:
        return "nothing to do: the tree is that of B"
    command = "save the plan (`> plan.yaml`), read it, and run `surgery plan A plan.yaml`"
    if document.is_whole:
        return f"{command}, then `surgery apply A NEW plan.yaml`"
    return f"{command}: it is refused until each gap has its edit and its `assert` is taken out"
