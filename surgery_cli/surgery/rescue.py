"""Rescue: a new checkpoint from what is left of a broken or unfinished one, and every loss named."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from surgery_cli import reports
from surgery_cli.engine.digests import LeafDigest
from surgery_cli.engine.progress import Listener
from surgery_cli.errors import (
    CheckpointError,
    DestinationError,
    Problem,
    SurgeryError,
)
from surgery_cli.inputs.buckets import path_at
from surgery_cli.proof.records import record_key, record_path, write_record
from surgery_cli.proof.surgery_json import Record, new_record
from surgery_cli.salvage.filling import Fill, fills_of
from surgery_cli.salvage.leaves import SavedLeaf
from surgery_cli.salvage.place import find_broken, fingerprint, is_understood
from surgery_cli.salvage.proving import proved
from surgery_cli.salvage.survey import Survey
from surgery_cli.salvage.survey import survey as survey_of
from surgery_cli.salvage.writing import NOTHING, Filled, KeptLeaf, places_kept, write_item
from surgery_cli.settings.shared import MEMORY_BYTES
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.links import Linker, LinkMode
from surgery_cli.store.locate.location import locate
from surgery_cli.store.open.checkpoint import Checkpoint, open_checkpoint
from surgery_cli.store.write.destination import check_destination
from surgery_cli.store.write.staging import Staging, begin_anew
from surgery_cli.surgery.rescue_report import places_said, rescue_report, saved_rows
from surgery_cli.surgery.source_and_destination import path_of, with_aftermath
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.lists import listed
from surgery_cli.words.quantities import counted, leaves_text


def rescue(
    broken: str,
    destination: str | None = None,
    *,
    allow_partial: bool = False,
    like: str | None = None,
    fill_from: str | None = None,
    fill_by: Fill = "leaf",
    memory_bytes: int = MEMORY_BYTES,
    listener: Listener | None = None,
) -> reports.Rescued:
    """Find what is left of ``broken``, in which nothing is changed, and write it to ``destination`` if one is named.

    ``like`` gives the structure where the metadata is lost. ``fill_from`` gives the values of what is lost: whole
    leaves, or with ``fill_by`` "chunk" the chunks that are missing. Without it, what is lost stays so, if
    ``allow_partial``.

    Raises:
        CheckpointError: nothing is left; or something is lost, and neither is allowed; or it changes meanwhile.
        SurgeryError: the destination, or another checkpoint, cannot be used.
    """
    begin_anew()
    path = path_at(broken)
    place = find_broken(path)
    before = fingerprint(place.root)
    target = None if destination is None else path_of(destination)
    if target is not None:
        _check_free(target)
        check_destination(target, place.root, force=False)
    other = open_checkpoint(fill_from) if fill_from else None
    survey = survey_of(place, open_checkpoint(like) if like else other, memory_bytes, listener)
    fills = {} if other is None else fills_of(survey, other, fill_by)
    rows = saved_rows(survey, fills, "" if other is None else other.address)
    report = rescue_report(survey, rows)
    if target is None:
        return report
    kept = _kept(survey, fills)
    lacking = [row for row in rows if row.state != "whole" and not row.filled_from]
    if lacking and not allow_partial:
        raise _incomplete(survey, rows, lacking)
    if not any(kept.values()):
        raise CheckpointError(
            f"no leaf of '{broken}' is whole", why=_why(lacking), fix="nothing can be written"
        )
    record = _appearing(survey, kept, target, rows, before, memory_bytes)
    written = sum(map(len, kept.values()))
    gaps = [
        survey.path(name, one.leaf.path)
        for name, leaves in kept.items()
        for one in leaves
        if one.leaf.entry is NOTHING
    ]
    return msgspec.structs.replace(
        report,
        destination=str(target),
        written=written,
        record=str(record),
        notes=[*report.notes, *places_said(gaps)],
    )


def _check_free(target: Path) -> None:
    if filesystem.is_taken(target):
        raise DestinationError(
            f"the destination '{target}' exists",
            why="a rescue replaces nothing",
            fix="name another, or remove it first",
        )


def _appearing(
    survey: Survey,
    kept: Mapping[str, list[KeptLeaf]],
    target: Path,
    rows: list[reports.SavedRow],
    before: str,
    memory_bytes: int,
) -> Path:
    """Build the result beside its name, prove it, and let it appear; the file of its record."""
    root = survey.place.root
    try:
        with Staging(target) as staging:
            record = _write(survey, kept, staging.new, rows, before, memory_bytes)
            if fingerprint(root) != before:
                raise CheckpointError(
                    f"'{root}' has changed meanwhile",
                    why="a job is still writing there, or removes it",
                    fix="wait until it is over, and run the command again",
                )
            staging.commit()
    except SurgeryError as error:
        with_aftermath(error)
        raise
    return target / record.relative_to(staging.new)


def _kept(survey: Survey, fills: Mapping[LeafPath, Filled]) -> dict[str, list[KeptLeaf]]:
    found = {}
    for name, leaves in survey.leaves.items():
        found[name] = [
            KeptLeaf(leaf, fills.get(survey.path(name, inner)))
            for inner, leaf in leaves.items()
            if leaf.state == "whole" or survey.path(name, inner) in fills
        ]
        empty = places_kept(kept.leaf.path for kept in found[name])
        found[name] += [
            KeptLeaf(SavedLeaf(path=path, entry=NOTHING, state="whole", value="None"))
            for path in empty
        ]
    return found


def _incomplete(
    survey: Survey, rows: list[reports.SavedRow], lacking: list[reports.SavedRow]
) -> CheckpointError:
    whole = sum(row.state == "whole" for row in rows)
    return CheckpointError(
        Problem(
            f"{whole} of {leaves_text(len(rows))} in '{survey.place.root}' are whole, and"
            f" {counted(len(lacking), 'is', 'are')} not",
            why=_why(lacking),
            fix="`--fill-from` an older step, or `--allow-partial` for what is whole; without DST, all are listed",
        )
    )


def _why(lacking: list[reports.SavedRow]) -> str:
    said = [
        f"'{row.path}' {'lost' if row.state == 'lost' else f'{row.share:.0%} there'}"
        for row in lacking
    ]
    return listed(said, 6)


def _write(
    survey: Survey,
    kept: Mapping[str, list[KeptLeaf]],
    new: Path,
    rows: list[reports.SavedRow],
    before: str,
    memory_bytes: int,
) -> Path:
    """Build the result, prove it, and put it on record; the file of the record."""
    linker = Linker(LinkMode.NEVER)
    for name, item in survey.items.items():
        if not kept[name] and (name or "all") in survey.lost:
            continue
        write_item(item, kept[name], new / name if name else new)
    for other in filter(is_understood, survey.place.others):
        linker.copy_tree(other, new / other.name)
    filesystem.forget(new)
    written = Checkpoint(locate(str(new), staging=True))
    digests = {}
    for name, leaves in kept.items():
        for one in leaves:
            path = one.leaf.path
            if written.location.prefix_items:
                path = LeafPath((name, *path))
            found = proved(survey, name, one, written, path, memory_bytes)
            if found is not None:
                digests[record_key(written, path)] = found
    record = _record(survey, rows, digests, before)
    place = record_path(written)
    write_record(place, record)
    return place


def _record(
    survey: Survey,
    rows: list[reports.SavedRow],
    digests: dict[str, LeafDigest],
    before: str,
) -> Record:
    origins = {
        row.path: {
            "from": "fill" if row.filled_from else "broken",
            "state": row.state,
            "proof": row.proof,
            **({"filled_from": row.filled_from, "missing": row.missing} if row.filled_from else {}),
        }
        for row in rows
        if row.state == "whole" or row.filled_from
    }
    lost = [row.path for row in rows if row.path not in origins]
    return new_record(
        source=str(survey.place.root),
        source_fingerprint=before,
        draft="",
        plan={},
        leaves=[],
        removed=lost,
        rescued=origins,
        digests=digests,
    )
