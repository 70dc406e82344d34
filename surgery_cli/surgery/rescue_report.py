"""The document of `rescue`: every leaf that was, with what is left of it and what proves that."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from surgery_cli import reports
from surgery_cli.salvage.item import spec_of
from surgery_cli.salvage.place import is_understood
from surgery_cli.salvage.survey import Survey
from surgery_cli.salvage.writing import Filled
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind
from surgery_cli.words.lists import listed

_UNKNOWN: Final = (
    ": lists, tuples and empty nodes are not known (`--like` an older step knows them)"
)


def saved_rows(
    survey: Survey, fills: Mapping[LeafPath, Filled], filled_from: str
) -> list[reports.SavedRow]:
    rows = []
    for name, leaves in survey.leaves.items():
        for inner, leaf in leaves.items():
            path = survey.path(name, inner)
            digest = survey.digests[name].get(inner)
            rows.append(
                reports.SavedRow(
                    path=str(path),
                    state=leaf.state,
                    type_text=""
                    if leaf.array is None
                    else spec_of(leaf.array, LeafKind.ARRAY).type_text,
                    share=round(leaf.share, 6),
                    missing=[_slices(block) for block in leaf.missing],
                    proof=survey.proofs.get(path, ""),
                    routes=[] if leaf.array is None else list(leaf.array.routes),
                    filled_from=filled_from if path in fills else "",
                    why=leaf.why,
                    digest="" if digest is None else digest.digest,
                )
            )
    return rows


def _slices(block: tuple[tuple[int, int], ...]) -> str:
    return f"[{', '.join(f'{start}:{stop}' for start, stop in block)}]"


def rescue_report(survey: Survey, rows: list[reports.SavedRow]) -> reports.Rescued:
    states = [row.state for row in rows]
    notes = []
    for name, item in survey.items.items():
        front = f"{name}: " if name else ""
        notes += [
            f"{front}'{file}' is damaged: {why}" for file, why in item.structure.faults.items()
        ]
        for path, text in item.odd_types.items():
            notes.append(
                f"{front}'{path}' is of a type {text!r} that nobody knows; taken for an array"
            )
        if item.structure.origin != "metadata":
            unknown = "" if item.structure.origin == "another checkpoint" else _UNKNOWN
            notes.append(f"{front}names and nesting come from {item.structure.origin}{unknown}")
    notes += [
        f"'{other.name}' is damaged, and left out"
        for other in survey.place.others
        if not is_understood(other)
    ]
    if any(row.proof == "decodes" for row in rows):
        notes.append(
            "'decodes' is no proof: chunks have no checksum, and a flipped bit in one gives other numbers"
        )
    return reports.Rescued(
        broken=str(survey.place.root),
        structure=", ".join(dict.fromkeys(item.structure.origin for item in survey.items.values())),
        leaves=rows,
        whole=states.count("whole"),
        partly=states.count("partly"),
        lost=states.count("lost"),
        notes=notes,
    )


def places_said(gaps: Collection[LeafPath]) -> list[str]:
    """What stands in the places of lists of which everything is lost."""
    if not gaps:
        return []
    said = listed(list(map(str, gaps)), 6)
    return [f"None stands for {said}, so that what follows in the list keeps its place"]
