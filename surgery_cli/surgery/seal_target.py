"""Where the record of a seal stands, and its list of digests; and what makes way for the record."""

from __future__ import annotations

from pathlib import Path

from surgery_cli.proof.record_files import check_record_target
from surgery_cli.proof.record_places import check_record_place, new_record_path, recorded_place
from surgery_cli.store import filesystem
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.write.aftermath import remaining
from surgery_cli.store.write.commit_marks import companion_of, older_records
from surgery_cli.surgery.record_beside import refuse_called_otherwise


def checked_target(to: Path | None, sums: Path | None, checkpoint: Checkpoint) -> Path:
    """Where the record of a seal goes: to the checkpoint, or to the file ``to``; ``sums`` is the list of digests.

    Raises:
        DestinationError: one of them cannot be written there.
        CheckpointError: an item of the step has the record's name.
    """
    place = recorded_place(checkpoint)
    target = new_record_path(checkpoint) if to is None else filesystem.absolute(to)
    if to is None:
        check_record_place(checkpoint)
        refuse_called_otherwise(place, lambda: target.parent == place.parent)
    check_record_target(target, place, option="" if to is None else "--to")
    if sums is not None:
        check_record_target(filesystem.absolute(sums), place, option="--sha256sums")
    return target


def remove_older(record: Path, checkpoint: Checkpoint) -> None:
    """What has been read is written anew beside the checkpoint, under another name: for Flax it would be a step."""
    place = recorded_place(checkpoint)
    for older in older_records(place) if record == companion_of(place) else ():
        try:
            filesystem.delete(older)
        except OSError:
            remaining.append(older)
