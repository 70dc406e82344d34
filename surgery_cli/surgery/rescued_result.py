"""The result of a rescue: built beside its name, proved, put on record, and let appear."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec

from surgery_cli import reports
from surgery_cli.engine.digests import LeafDigest
from surgery_cli.errors import CheckpointError, SurgeryError
from surgery_cli.inputs.buckets import BucketPath, path_at
from surgery_cli.proof.damaged_text import json_object
from surgery_cli.proof.file_marks import file_mark
from surgery_cli.proof.files import file_key
from surgery_cli.proof.metadata_files import metadata_faults
from surgery_cli.proof.new_records import record_around
from surgery_cli.proof.on_record import history_of
from surgery_cli.proof.record_parts import ChangedLeaf
from surgery_cli.proof.record_places import (
    named_trees,
    new_record_path,
    record_key,
    recorded_place,
)
from surgery_cli.proof.records import slots_on_record, without_repeated, write_record
from surgery_cli.proof.step_metadata_file import sound_part
from surgery_cli.proof.surgery_json import Record, new_record
from surgery_cli.salvage.file import BrokenFile
from surgery_cli.salvage.place import fault_beside, fingerprint
from surgery_cli.salvage.proving import proved
from surgery_cli.salvage.survey import Survey
from surgery_cli.salvage.writing import KeptLeaf, write_item
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.links import Linker, LinkMode
from surgery_cli.store.filesystem.listing import unreadable
from surgery_cli.store.filesystem.write_failures import is_of_writing, write_failed
from surgery_cli.store.locate.items import STEP_METADATA, V1_MARK
from surgery_cli.store.locate.location import locate
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.write.aftermath import with_aftermath
from surgery_cli.store.write.bucket_staging import BucketStaging
from surgery_cli.store.write.staging import Staging
from surgery_cli.surgery.rescue_target import Target
from surgery_cli.words.lists import listed


class Rescue(msgspec.Struct, frozen=True):
    """What is to be written: the leaves of each item, and what the report says of all that there were.

    ``before`` is the fingerprint of the broken place from before anything of it was read; ``donors`` are those of what
    leaves are filled from, by address.
    """

    survey: Survey
    kept: dict[str, list[KeptLeaf]]
    rows: list[reports.SavedRow]
    before: str
    donors: dict[str, str]
    memory_bytes: int

    def appear(self, target: Target) -> Path:
        """Build the result beside its name, prove it, and let it appear; the file of its record.

        Raises:
            CheckpointError: what is broken has changed meanwhile.
            SurgeryError: the result cannot be written there, or is not what was found.
        """
        root, linker = self.survey.place.root, Linker(LinkMode.NEVER)
        try:
            with _staging(target.path, linker) as staging:
                record = self._write(staging, linker, target)
                if fingerprint(root) != self.before:
                    raise CheckpointError(
                        f"'{root}' has changed meanwhile",
                        why="a job is still writing there, or removes it",
                        fix="wait until it is over, and run the command again",
                    )
                linker.check_standing(staging.new)
                staging.commit()
        except SurgeryError as error:
            with_aftermath(error)
            raise
        except OSError as error:
            raise with_aftermath(_of_system(error, root, target.path)) from error
        is_beside = not record.is_relative_to(staging.new)
        return (
            target.path.with_name(record.name)
            if is_beside
            else target.path / record.relative_to(staging.new)
        )

    def _write(self, staging: Staging | BucketStaging, linker: Linker, target: Target) -> Path:
        """Everything in its place, read back and put on record; the file of the record."""
        new = target.step_in(staging.new)
        filesystem.make_folders(new.parent)  # a step may be a file
        for name, item in self.survey.items.items():
            was_empty = not self.survey.leaves[name] and name not in self.survey.lost
            if self.kept[name] or was_empty:
                place = new / name if name else new
                if isinstance(item, BrokenFile):
                    item.write(self.kept[name], place)
                else:
                    write_item(item, self.kept[name], place)
        for other in self.survey.place.others:
            is_lost = file_key(other.name) in self.survey.lost
            if not is_lost and other.name != STEP_METADATA and not fault_beside(other):
                linker.copy_tree(other, new / other.name)
        for file in target.files:
            linker.copy_tree(file, staging.new / file.name)
        filesystem.forget(staging.new)
        self._write_step_metadata(new, linker)
        filesystem.forget(staging.new)
        staging.is_built()
        written = Checkpoint(locate(str(new), staging=True))
        _refuse_faulty(written)
        digests = {}
        for name, leaves in self.kept.items():
            for one in leaves:
                path = written.path_in(name, one.leaf.path)
                digests[record_key(written, path)] = proved(one, written, path, self.memory_bytes)
        place = new_record_path(written)
        write_record(place, self._record(written, digests, target.path))
        return place

    def _write_step_metadata(self, new: Path, linker: Linker) -> None:
        """As it was, or what of it is sound and of items that are there."""
        old = self.survey.place.root / STEP_METADATA
        if old not in self.survey.place.others or STEP_METADATA in self.survey.lost:
            document: dict[str, Any] | None = None
        else:
            document, _ = json_object(old)
        if document is not None:
            items = {entry.name for entry in filesystem.entries(new) if entry.is_folder}
            sound = sound_part(document, items)
            if sound == document:
                linker.copy_tree(old, new / STEP_METADATA)
                return
            document = sound
        if document is None and filesystem.exists(new / V1_MARK):
            document = {}  # without one, Orbax's v1 knows no layout
        if document is not None:
            filesystem.write(new / STEP_METADATA, json.dumps(document).encode())

    def _record(self, written: Checkpoint, digests: dict[str, LeafDigest], target: Path) -> Record:
        trees = named_trees(written)
        origins = {
            row.path: _origin(row) for row in self.rows if row.state == "whole" or row.filled_from
        }
        return new_record(
            source=str(self.survey.place.root),
            source_fingerprint=self.before,
            trees=trees,
            edited_trees=trees,
            put_into=record_around(target),
            of_file=file_mark(recorded_place(written)),
            donors=self.donors,
            draft="",
            plan={},
            leaves=[
                # of what it was by earlier runs, nothing is known
                ChangedLeaf(
                    path=row.path,
                    from_=None,
                    operations=[],
                    before=None,
                    after=row.filled_type or row.type_text,
                )
                for row in self.rows
                if row.filled_from
            ],
            removed=[
                *(row.path for row in self.rows if row.path not in origins),
                *(one.name or "." for one in self.survey.lost_items),
            ],
            rescued=origins,
            digests=digests,
            slots=slots_on_record(self.survey.records, written, self._filled_keys(written)),
            history=without_repeated(history_of(self.survey.records.values()), digests),
        )

    def _filled_keys(self, written: Checkpoint) -> list[str]:
        """How the record names the leaves of which something comes from elsewhere."""
        filled = {row.path for row in self.rows if row.filled_from}
        return [
            record_key(written, written.path_in(name, one.leaf.path))
            for name, leaves in self.kept.items()
            for one in leaves
            if str(self.survey.path(name, one.leaf.path)) in filled
        ]


def _refuse_faulty(written: Checkpoint) -> None:
    """See that a result has nothing that `verify` would find."""
    faults = metadata_faults(written)
    if faults:
        raise CheckpointError(
            "what is left does not make a checkpoint that Orbax restores",
            why=listed([f"'{file}': {why}" for file, why in faults], 3),
            fix="put these files of another step of the run in their place, and run the command again",
        )


def _staging(target: Path, linker: Linker) -> Staging | BucketStaging:
    """Where the result is built: beside its name, for TensorStore writes there by itself."""
    if isinstance(target, BucketPath):
        return BucketStaging(target, linker, beside=True)
    return Staging(target)


def _origin(row: reports.SavedRow) -> dict[str, Any]:
    """Where the values of a leaf of the result come from."""
    found = {"from": "broken", "state": row.state, "proof": row.proof}
    if row.described_by:
        found["described_by"] = row.described_by
    if not row.filled_from:
        return {**found, "assumes": row.assumes} if row.assumes else found
    return {**found, "from": "fill", "filled_from": row.filled_from, "missing": row.missing}


def _of_system(error: OSError, root: Path, target: Path) -> SurgeryError:
    """What the system refused: to give what is read, which may go meanwhile, or to take what is written."""
    file = path_at(os.fsdecode(error.filename)) if error.filename else None
    if file is not None and not is_of_writing(error) and file.is_relative_to(root):
        return unreadable(file, error)
    return write_failed(str(target), error)
