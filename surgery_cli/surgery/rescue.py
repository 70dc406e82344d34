"""Rescue: a new checkpoint from what is left of a broken or unfinished one, and every loss named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from surgery_cli import reports
from surgery_cli.engine.progress import Listener
from surgery_cli.errors import CheckpointError, Problem, SurgeryError
from surgery_cli.inputs.buckets import path_at
from surgery_cli.salvage.filling import Fill, FillBy
from surgery_cli.salvage.leaves import SavedLeaf
from surgery_cli.salvage.place import BrokenPlace, find_broken, fingerprint
from surgery_cli.salvage.states import LostItem, said_lost
from surgery_cli.salvage.survey import Survey
from surgery_cli.salvage.writing import NOTHING, KeptLeaf, places_kept
from surgery_cli.script.user_code import Say, importing_once
from surgery_cli.settings.shared import MEMORY_BYTES
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import PassingOver
from surgery_cli.store.filesystem.processes import State
from surgery_cli.store.locate.being_written import claim_around
from surgery_cli.store.open.checkpoint import Checkpoint, open_checkpoint
from surgery_cli.store.write.aftermath import begin_anew, remaining_notes
from surgery_cli.surgery.filled_apart import filled_apart
from surgery_cli.surgery.record_notes import foreign_record_notes
from surgery_cli.surgery.rescue_fills import Asked, surveyed
from surgery_cli.surgery.rescue_report import places_said, rescue_report, saved_rows
from surgery_cli.surgery.rescue_target import target_of
from surgery_cli.surgery.rescued_result import Rescue
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.lists import listed
from surgery_cli.words.notes import Consequence, Note
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.quantities import counted, leaves_text


@importing_once()
def rescue(
    broken: str,
    destination: str | None = None,
    *,
    allow_partial: bool = False,
    like: str | None = None,
    like_init: str | None = None,
    fill_from: str | None = None,
    fill: Literal["init"] | None = None,
    fill_by: FillBy = "leaf",
    memory_bytes: int = MEMORY_BYTES,
    listener: Listener | None = None,
    say: Say = lambda _: None,
) -> reports.Rescued:
    """Find what is left of ``broken``, in which nothing is changed, and write it to ``destination`` if one is named.

    ``like``, else what the function ``like_init`` returns, gives the structure where the metadata is lost.
    ``fill_from`` gives the values of what is lost, or with ``fill`` "init" that function: whole leaves, or with
    ``fill_by`` "chunk" the chunks that are missing. Without either, what is lost stays so, if ``allow_partial``.

    Raises:
        BeingWrittenError: a living run of this program is writing it.
        CheckpointError: nothing is left; or something is lost, and neither is allowed; or it changes meanwhile.
        SurgeryError: the destination, or another checkpoint, cannot be used.
    """
    begin_anew()
    asked = Asked(like, like_init, fill_from, fill, fill_by)
    asked.check()
    path = path_at(broken)
    filesystem.forget(path)
    place, doubts = _place(path)
    before = fingerprint(place.root)
    target = None if destination is None else target_of(destination, place)
    survey, fills, other, named_like = surveyed(place, asked, memory_bytes, listener, say)
    rows = saved_rows(survey, fills)
    report = rescue_report(survey, rows, named_like, other)
    notes = [*doubts, *report.notes, *filled_apart(survey, fills, other), *_of_record(survey)]
    report = msgspec.structs.replace(report, notes=notes)
    if target is None:
        return report
    kept = _kept(survey, fills)
    lacking = [row for row in rows if row.state != "whole" and not row.filled_from]
    if not allow_partial:
        _refuse_parts(survey, report, lacking, asked)
    if not any(kept.values()):
        raise CheckpointError(
            f"no leaf of '{broken}' is whole",
            why=_why(lacking, survey.lost_items),
            fix="nothing can be written",
        )
    donors = _donors(other, rows)
    record = Rescue(survey, kept, rows, before, donors, memory_bytes).appear(target)
    return msgspec.structs.replace(
        report,
        destination=str(target.path),
        destination_step=target.step or None,
        written=sum(map(len, kept.values())),
        record=str(record),
        notes=[*report.notes, *places_said(_gaps(survey, kept)), *target.notes, *remaining_notes()],
    )


def _place(path: Path) -> tuple[BrokenPlace, list[Note]]:
    """What is broken, and a note where a run may be writing it."""
    claim = claim_around(filesystem.real(path))
    place = find_broken(path)
    for tree in (place.root, *place.items.values()):
        claim = claim_around(tree) or claim
    if claim is None:
        return place, []
    if claim.state is State.DEAD:
        said = f"{claim.what}: {claim.why}; what it had not written counts as lost; {claim.fix}"
    else:
        said = f"{claim.what}, or was: {claim.why}; what it had not written by now counts as lost"
    return place, [Consequence(DocsPage.RESCUE_LOOK, said)]


def _of_record(survey: Survey) -> list[Note]:
    """A note of a record that is another checkpoint's, whose digests are those of other values then."""
    if not any(survey.records.values()):
        return []
    with PassingOver(OSError, SurgeryError):  # what does not open is what a rescue is for
        checkpoint = open_checkpoint(str(survey.place.root))
        if not checkpoint.inferred_items:  # else what is lost is no leaf of it
            return [*foreign_record_notes(checkpoint)]
    return []


def _gaps(survey: Survey, kept: Mapping[str, list[KeptLeaf]]) -> list[LeafPath]:
    """Where something stands that was not there, so that lists keep their places."""
    return [
        survey.path(name, one.leaf.path)
        for name, leaves in kept.items()
        for one in leaves
        if one.leaf.entry is NOTHING
    ]


def _donors(other: Checkpoint | None, rows: Sequence[reports.SavedRow]) -> dict[str, str]:
    """The fingerprint of what leaves are filled from, by its address."""
    is_used = any(row.filled_from for row in rows)
    return {} if other is None or not is_used else {other.address: other.fingerprint}


def _kept(survey: Survey, fills: Mapping[LeafPath, Fill]) -> dict[str, list[KeptLeaf]]:
    """The leaves of the result, by item: those that are whole or filled, and what keeps the places of lists."""
    found = {}
    for name, leaves in survey.leaves.items():
        filled = {inner: fills.get(survey.path(name, inner)) for inner in leaves}
        kept = [
            fill.kept if fill is not None else KeptLeaf(leaf)
            for leaf, fill in zip(leaves.values(), filled.values(), strict=True)
            if fill is not None or leaf.state == "whole"
        ]
        empty = places_kept(one.leaf.path for one in kept)
        found[name] = kept + [
            KeptLeaf(SavedLeaf(path=path, entry=NOTHING, state="whole", value="None"))
            for path in empty
        ]
    return found


def _refuse_parts(
    survey: Survey, report: reports.Rescued, lacking: list[reports.SavedRow], asked: Asked
) -> None:
    """Refuse what is less than was saved, or may be something else.

    Raises:
        CheckpointError: so.
    """
    if lacking or survey.lost_items:
        raise _incomplete(survey, report.leaves, lacking, asked)
    _refuse_other_tree(report)
    _refuse_assumptions(survey, report.leaves)


def _incomplete(
    survey: Survey,
    rows: list[reports.SavedRow],
    lacking: list[reports.SavedRow],
    asked: Asked,
) -> CheckpointError:
    whole = sum(row.state == "whole" for row in rows)
    apart = survey.lost_items  # which no leaf of another fills
    ways = []
    if apart:
        ways.append(f"copy {listed(apart, 4, word='and')} again from where it is whole")
    if lacking and not (asked.fill_from or asked.fill):
        ways.append("`--fill-from` an older step" + " for the rest" * bool(apart))
    first = f"{listed(ways, word='and')}, or " if ways else ""
    filled = len(rows) - whole - len(lacking)
    found = f"{whole} of {leaves_text(len(rows))} in '{survey.place.root}' are whole"
    rest = f", and {counted(len(lacking), 'is', 'are')} not" if lacking else ""
    if filled:
        found = f"{found}, {filled:,} can be filled"
        rest = f", and {len(lacking):,} cannot" if lacking else ""
    if apart:
        rest = f"{rest}, and {said_lost(apart)}"
    kept = "what is whole or can be filled" if filled else "what is whole"
    return CheckpointError(
        Problem(
            f"{found}{rest}",
            why=_why(lacking, apart),
            fix=f"{first}`--allow-partial` for {kept}; without DST, all are listed",
        )
    )


def _refuse_assumptions(survey: Survey, rows: list[reports.SavedRow]) -> None:
    """Refuse to take for what was saved what may be displaced.

    Raises:
        CheckpointError: so; with what must be so.
    """
    assumed = [row for row in rows if row.assumes and not row.filled_from]
    if assumed:
        said = listed(list(dict.fromkeys(row.assumes for row in assumed)), word="and")
        is_described = any(row.described_by for row in assumed)
        like = "`--like` another step, which describes them; or " if is_described else ""
        raise CheckpointError(
            f"{leaves_text(len(assumed))} in '{survey.place.root}' may hold other values than were saved",
            why=f"they are what was saved if {said}, and nothing in the file shows that",
            fix=f"{like}`--allow-partial` takes them, and puts on record what that assumes; or copy the file again",
        )


def _refuse_other_tree(report: reports.Rescued) -> None:
    """Refuse to write leaves in a tree of which only their names are known.

    Raises:
        CheckpointError: so.
    """
    if report.structure_lacks:
        lacking = listed(report.structure_lacks, word="and")
        raise CheckpointError(
            f"every leaf in '{report.broken}' that is named is whole, and the tree they were saved in is not known",
            why=f"names come from {report.structure}: {lacking} are lost, and Orbax may refuse the original target",
            fix="`--like` a whole step, or `--like-init`, gives them; `--allow-partial` goes by names",
        )


def _why(lacking: Sequence[reports.SavedRow], apart: Sequence[LostItem]) -> str:
    said = [
        f"'{row.path}' {'lost' if row.state == 'lost' else f'{row.share:.0%} there'}"
        for row in lacking
    ]
    return listed([*said, *(f"{one}: {one.why}" for one in apart)], 6)
