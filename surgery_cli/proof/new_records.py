"""What the record of a result states of where it belongs: of which trees it is, and into which step it was put."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec import UNSET, UnsetType

from surgery_cli.errors import CheckpointError, ServiceFails
from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.proof.file_marks import file_mark
from surgery_cli.proof.on_record import record_at
from surgery_cli.proof.record_places import named_trees, recorded_place
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import holds_pytree, reading
from surgery_cli.store.filesystem.names import RECORD
from surgery_cli.store.locate.surroundings import checkpoint_at
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.write.commit_marks import companion_of


def record_around(target: Path) -> str | UnsetType:
    """The ``content`` of the record of what a destination lies in; unset where there is none, or a damaged one."""
    around = filesystem.absolute(target).parent
    beside = [] if isinstance(around, BucketPath) else [companion_of(around)]
    try:
        with reading(around):
            found = (record_at(path) for path in (around / RECORD, *beside))
            record = next((one for one in found if one is not None), None)
    except ServiceFails:
        raise
    except CheckpointError:
        return UNSET
    return UNSET if record is None else record.content or UNSET


def about(source: Checkpoint, written: Checkpoint, target: Path) -> dict[str, Any]:
    """Of which trees the record of a result is, and of which the run was, as fields of it."""
    return {
        "trees": named_trees(written),
        "edited_trees": _edited_trees(source, written, target),
        "put_into": record_around(target),
        "of_file": file_mark(recorded_place(written)),
    }


def _edited_trees(source: Checkpoint, written: Checkpoint, target: Path) -> list[str] | UnsetType:
    """The trees that a run was about: all of both if paths begin with their names, or the one without.

    What is put into a step has no name there, and becomes an item of that of its folder.
    """
    every = [name for name in dict.fromkeys([*source.items, *written.items]) if name]
    if source.location.prefix_items or written.location.prefix_items:
        return every
    if chosen := [name for name in written.items if name]:
        return chosen
    around = filesystem.absolute(target).parent
    found = checkpoint_at(around) if filesystem.is_folder(around) else None
    return [target.name] if found is not None and not holds_pytree(found) else UNSET
