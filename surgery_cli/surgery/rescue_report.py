"""The document of `rescue`: every leaf that was, with what is left of it and what proves that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from surgery_cli import reports
from surgery_cli.proof.sharding_file import STILL_RESTORED
from surgery_cli.salvage.decoded_arrays import spec_of
from surgery_cli.salvage.file import BrokenFile
from surgery_cli.salvage.filling import Fill
from surgery_cli.salvage.item import BrokenItem
from surgery_cli.salvage.leaves import SavedLeaf
from surgery_cli.salvage.older_steps import is_run, number_of
from surgery_cli.salvage.place import fault_beside
from surgery_cli.salvage.states import Route
from surgery_cli.salvage.structure import WHOLE, Structure
from surgery_cli.salvage.survey import Survey
from surgery_cli.store.locate.items import METRICS, STEP_METADATA
from surgery_cli.store.locate.location import Location
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.orbax.sidecars import METADATA, SHARDING
from surgery_cli.surgery.step_metrics import come_along
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind
from surgery_cli.words.lists import listed
from surgery_cli.words.notes import Consequence, Note
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.quantities import leaves_text

_LACKING: Final = ("names of arrays", "the file before its break")
"""Whence not all names may be known."""


def saved_rows(survey: Survey, fills: Mapping[LeafPath, Fill]) -> list[reports.SavedRow]:
    """A row for every leaf, with what fills it."""
    rows = []
    for name, leaves in survey.leaves.items():
        for inner, leaf in leaves.items():
            path = survey.path(name, inner)
            fill = fills.get(path)
            rows.append(
                reports.SavedRow(
                    path=str(path),
                    state=leaf.state,
                    type_text=_type_text(leaf),
                    share=round(leaf.share, 6),
                    missing=[_slices(block) for block in leaf.missing if block],
                    proof=leaf.proof or "",
                    routes=[] if leaf.array is None else list(leaf.array.routes),
                    filled_from="" if fill is None else fill.origin,
                    filled_type="" if fill is None else fill.type_text,
                    why=leaf.why,
                    digest="" if leaf.digest is None else leaf.digest.digest,
                    assumes=leaf.assumes or "",
                    described_by="" if leaf.array is None else leaf.array.described_by,
                )
            )
    return rows


def _type_text(leaf: SavedLeaf) -> str:
    spec = leaf.spec if leaf.array is None else spec_of(leaf.array, LeafKind.ARRAY)
    return "" if spec is None else spec.type_text


def _slices(block: tuple[tuple[int, int], ...]) -> str:
    return f"[{', '.join(f'{start}:{stop}' for start, stop in block)}]"


def rescue_report(
    survey: Survey, rows: list[reports.SavedRow], like: str, other: Checkpoint | None
) -> reports.Rescued:
    """The document; ``other`` is the checkpoint that fills what is lost, if one does, and ``like`` the address of that
    which gives the structure where the metadata is lost.
    """
    filled_from = None if other is None else other.location
    states = [row.state for row in rows]
    notes: list[Note] = []
    for name, item in survey.items.items():
        front = f"{name}: " if name else ""
        notes += [
            Consequence(DocsPage.RESCUE_LOOK, f"{front}'{file}' is damaged: {why}")
            for file, why in item.structure.faults.items()
        ]
        notes += [Consequence(DocsPage.RESCUE_LOOK, front + said) for said in _untrue(item)]
        for path, text in item.odd_types.items():
            said = f"{front}'{path}' is of a type {text!r} that nobody knows; taken for an array"
            notes.append(Consequence(DocsPage.RESCUE_LOOK, said))
        notes += [
            Consequence(DocsPage.RESCUE_LOOK, front + said) for said in _unnamed(item.structure)
        ]
        if item.structure.origin not in WHOLE:
            said = f"{front}names and nesting come from {item.structure.origin}"
            said += f", '{like}'" if item.structure.origin == "another checkpoint" else ""
            notes.append(Consequence(DocsPage.RESCUE_LOOK, said))
    for file in survey.place.others:
        if fault := fault_beside(file):
            kept = ", or what of it is" if file.name == STEP_METADATA else ""
            said = f"'{file.name}' is damaged, and left out{kept}: {fault}"
            notes.append(Consequence(DocsPage.RESCUE_LOOK, said))
    if filled_from is not None and filled_from.shape == "root" and any(r.filled_from for r in rows):
        notes.append(Consequence(DocsPage.RESCUE_WRITES, _filled_from(filled_from, survey)))
    if untold := [f"'{row.path}' ({row.filled_type})" for row in rows if row.filled_type]:
        named = listed(untold, 6, word="and")
        said = (
            f"nothing that is left describes {named}: the dtype at least is that of what fills it"
        )
        notes.append(Consequence(DocsPage.RESCUE_WRITES, said))
    has_metrics = any(one.name == METRICS for one in survey.place.others)
    if has_metrics and METRICS not in survey.lost and any(row.filled_from for row in rows):
        notes.append(Consequence(DocsPage.RESCUE_WRITES, come_along(survey.place.name)))
    notes += [Consequence(DocsPage.RESCUE_LEAVES, said) for said in _described(rows)]
    doubts = [*filter(None, [survey.record_fault]), *_doubts(survey, rows)]
    notes += [Consequence(DocsPage.RESCUE_LEAVES, doubt) for doubt in doubts]
    return reports.Rescued(
        broken=str(survey.place.root),
        structure=", ".join(dict.fromkeys(item.structure.origin for item in survey.items.values())),
        structure_lacks=[] if all(map(_knows_nesting, survey.items.values())) else _UNSAID,
        leaves=rows,
        whole=states.count("whole"),
        partly=states.count("partly"),
        lost=states.count("lost"),
        lost_items=survey.lost_items,
        notes=notes,
    )


def _filled_from(run: Location, survey: Survey) -> str:
    """Which step of a run fills what is not whole, and why that one, if nobody has named it."""
    said, number = (
        f"step {run.step} of '{run.root}' fills what is not whole",
        number_of(survey.place),
    )
    if is_run(run.argument):
        before = "" if number is None else f" before {number}"
        return f"{said}: it is the newest{before} that can be read"
    is_later = number is not None and run.step is not None and run.step > number
    is_of_it = survey.place.root.parent == run.root
    return f"{said}: it was saved after {number}" if is_later and is_of_it else said


def _described(rows: list[reports.SavedRow]) -> Iterator[str]:
    """Which leaves are read by a description that is not their own."""
    by_place: dict[str, list[str]] = {}
    for row in rows:
        if row.described_by and not (row.filled_from and row.state == "lost"):
            by_place.setdefault(row.described_by, []).append(f"'{row.path}' ({row.type_text})")
    for place, named in by_place.items():
        said = listed(named, 6, word="and")
        yield f"what described {said} is lost: read as '{place}' describes it, which all that is stored agrees with"


def _unnamed(structure: Structure) -> Iterator[str]:
    """What is stored and ``_METADATA`` does not name, and what becomes of it."""
    found = structure.unnamed.values()
    guessed = structure.placed_by_name
    for which, where in (
        ([path for path in found if path in guessed], "placed by stored names alone"),
        (
            [path for path in found if path is not None and path not in guessed],
            "placed as in what it is like",
        ),
        (
            [name for name, path in structure.unnamed.items() if path is None],
            "left out, as a leaf stands where its name leads",
        ),
    ):
        if which:
            said = listed([f"'{one}'" for one in which], 6, word="and")
            yield f"stored, and named by no metadata: {said}; {where}"


def _untrue(item: BrokenItem | BrokenFile) -> Iterator[str]:
    """What small files say that is not so: none of it goes into a result."""
    if item.structure.odd and METADATA not in item.structure.faults:
        yield f"'{METADATA}' is damaged, and written anew: {listed(item.structure.odd, 3)}"
    if item.respelled:
        named = listed([f"'{name}'" for name in item.respelled], 3, word="and")
        yield (
            f"stored in folders whose names differ only in Unicode form: {named}; written as `{METADATA}` spells it"
        )
    for file, faults in item.untrue.items():
        if faults:
            said = listed([f"'{name}' ({why})" for name, why in faults.items()], 3, word="and")
            needs = f"; of what has none then, {STILL_RESTORED}" if file == SHARDING else ""
            yield f"'{file}' is wrong about {said}: that is left out, or written as stored{needs}"


_UNSAID: Final = ["empty nodes", "None", "types of containers"]
"""What names of arrays do not say."""


def _knows_nesting(item: BrokenItem | BrokenFile) -> bool:
    return item.structure.is_known


def _doubts(survey: Survey, rows: list[reports.SavedRow]) -> list[str]:
    """What a person in a hurry should not take for more than it is."""
    found = [
        f"{leaves_text(count)} are what was saved if {said}: nothing in the file shows that"
        for said, count in Counter(row.assumes for row in rows if row.assumes).items()
    ]
    if any(row.proof == "decodes" for row in rows):
        found.append(
            "'decodes' is no proof: chunks have no checksum, nor what describes a leaf in a folder of its own, and a"
            " flipped bit gives other numbers, or another shape"
        )
    if any(item.structure.origin in _LACKING for item in survey.items.values()):
        found.append("a leaf of which neither a name nor a value is left is not counted")
    ways = [row.routes[-1] for row in rows if row.state == "whole" and row.routes]
    for way, words in _LESS_THAN_THE_MANIFEST.items():
        if number := ways.count(way):
            found.append(
                f"{leaves_text(number)} found {words}: if files of two saves are mixed here, they may be of the other"
            )
    unstored = [leaf for leaves in survey.leaves.values() for leaf in leaves.values()]
    if count := sum(leaf.array is not None and leaf.array.has_unstored for leaf in unstored):
        found.append(
            f"chunks of {leaves_text(count)} are read as zeros, as by Orbax: none are stored, and the release that"
            " wrote this stored no chunk of zeros"
        )
    if any(item.values.are_of_two_saves for item in survey.items.values()):
        found.append(
            "manifests lead to different values: files of two saves are mixed here, and what the first manifest leads"
            " to was taken"
        )
    return found


_LESS_THAN_THE_MANIFEST: Final[dict[Route, str]] = {
    "process manifest": "by the manifest of a process, and not by that of the whole",
    "manifest not renamed": "by a manifest that was never renamed",
    "earlier version": "by an earlier version of a manifest",
    "scan for nodes": "in data files, with no manifest that leads there",
}


def places_said(gaps: Collection[LeafPath]) -> list[Note]:
    """What stands in the places of lists of which everything is lost."""
    if not gaps:
        return []
    said = listed(list(map(str, gaps)), 6)
    said = f"None stands for {said}, so that what follows in the list keeps its place"
    return [Consequence(DocsPage.RESCUE_WRITES, said)]
