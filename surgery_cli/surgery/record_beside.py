"""The record of a result that stands beside it: its place is part of the destination, and may be another's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shlex import quote

from surgery_cli.errors import DestinationError, SurgeryError, UnseenError
from surgery_cli.inputs.buckets import BucketPath, renaming
from surgery_cli.proof.record_places import record_path, recorded_place
from surgery_cli.store import filesystem
from surgery_cli.store.export.table import FORMATS
from surgery_cli.store.filesystem.listing import reading, removal_of
from surgery_cli.store.filesystem.names import names_of_record
from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.store.write.commit_marks import companion_of, is_record
from surgery_cli.store.write.item_plan import is_converted
from surgery_cli.surgery.preparation import Prepared
from surgery_cli.words.notes import Note, Remark
from surgery_cli.words.pages import DocsPage


def stale_record(
    target: Path, prepared: Prepared, *, built: Path | None, resumes: bool
) -> Path | None:
    """The record of a single file that was removed since: that of the result comes in its place.

    ``built``: where in a bucket a dead run has built, which makes way; at the destination, the record is its own.
    ``resumes``: what was interrupted would have to know of it, and does not.

    Raises:
        DestinationError: what stands there is none of that, nor of what is replaced with ``--force``.
    """
    record = companion_of(target)
    refuse_called_otherwise(target, lambda: _comes_beside(target, prepared))
    if built == target or not filesystem.is_taken(record):
        return None
    if _is_of(record, target) or not _comes_beside(target, prepared):
        return None
    is_there = filesystem.is_taken(target)
    if not is_there and not resumes and is_record(record):
        return record
    mend = f"remove it: `{removal_of(record)}`"
    if not isinstance(record, BucketPath):
        mend = f"give it another name: `mv -n {quote(str(record))} NAME`, or {mend}"
    raise DestinationError(
        f"'{record}' exists, where the record of the result would stand",
        why=f"it is no record of '{target}' as that stands there, so that nothing would replace it"
        if is_there
        else "it is of what stood there before, and `--resume` replaces none"
        if is_record(record)
        else "it is no record that `surgery` has written",
        fix=f"name another destination, or {mend}",
    )


def refuse_called_otherwise(target: Path, comes_beside: Callable[[], bool]) -> None:
    """A record of an earlier version would stay as it is: of another file, and for Flax the last step of its run.

    On a disk it goes with what is replaced, or as another one comes in its place. ``comes_beside`` tells whether the
    new record does.

    Raises:
        DestinationError: there is one.
    """
    if filesystem.is_taken(target) and filesystem.renames(target):
        return
    now, *before = (target.with_name(name) for name in names_of_record(target.name))
    for record in before:
        if not (filesystem.is_taken(record) and comes_beside() and is_record(record)):
            continue
        mend = f"remove it: `{removal_of(record)}`"
        if not filesystem.is_taken(now):
            mend = f"give it its name: `{renaming(record, now)}`"
        raise DestinationError(
            f"'{record}' is a record under the name that it had in an earlier version",
            why=f"by now it is '{now.name}', and nothing would replace this one; Flax takes it for a step",
            fix=mend,
        )


def stale_notes(stale: Path | None) -> list[Note]:
    """What is said where the record of a file that is gone makes way."""
    if stale is None:
        return []
    said = f"the record '{stale}' is replaced, of a file that stood beside it"
    return [Remark(DocsPage.HOW_IT_WRITES, said)]


def _is_of(record: Path, target: Path) -> bool:
    """True if it goes with what stands at a destination: beside a file, or what has none in it."""
    if filesystem.is_file(target):
        return True
    if not filesystem.is_folder(target) or filesystem.is_link(target):
        return False
    try:
        with reading(target):
            return record_path(open_checkpoint(str(target))) == record
    except UnseenError:
        raise
    except SurgeryError:
        return False


def _comes_beside(target: Path, prepared: Prepared) -> bool:
    """True if the result is a single file, or a directory in which a record would be taken for a leaf."""
    source = prepared.checkpoint
    if prepared.output is not None:
        (item,) = prepared.plans.values()
        files = FORMATS[prepared.output.format].new_files(item, target, prepared.output)
        return any(not file.name for file in files)
    if any(is_converted(item) for item in source.items.values()):
        return False
    return record_path(source).parent == recorded_place(source).parent
