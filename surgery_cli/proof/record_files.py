"""The file of a record that is added to a checkpoint as it stands: where it may be, and how it gets its name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from surgery_cli.errors import CheckpointError, DestinationError
from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.durability import (
    may_write_into,
    put_durably,
    rename,
    sync_directory,
)
from surgery_cli.store.filesystem.interruptions import uninterrupted
from surgery_cli.store.filesystem.small_files import read_anew
from surgery_cli.store.filesystem.write_failures import write_failed
from surgery_cli.store.write.aftermath import (
    NO_REPORT,
    NOT_LASTING,
    Completed,
    remaining,
    with_aftermath,
)
from surgery_cli.store.write.leftovers import draft_of
from surgery_cli.words.advice import NOTHING_LEFT, worded


def check_record_target(target: Path, place: Path, *, option: str = "") -> None:
    """The record must have a place: beside the data, or at a name that is free and outside of the checkpoint.

    ``option`` is the one that names ``target``; without any it is the checkpoint's own.

    Raises:
        DestinationError: it has none.
    """
    if option and filesystem.is_taken(target):
        raise DestinationError(
            f"'{target}' exists",
            why="nothing is overwritten unless that is asked for",
            fix="name another file, or remove it first",
        )
    if option and filesystem.real(target.parent).is_relative_to(filesystem.real(place)):
        raise DestinationError(
            f"'{target}' lies inside the checkpoint",
            why="readers would come upon it, and it would not be sealed itself",
            fix=f"name a file outside of it, or leave `{option}` out",
        )
    if isinstance(target, BucketPath):  # folders are names, and only writing tells who may write
        return
    if not filesystem.is_folder(target.parent):
        raise DestinationError(
            f"'{target}' cannot be made",
            why=f"'{target.parent}' is no directory",
            fix="make it first, or name another",
        )
    if not may_write_into(target.parent):
        raise DestinationError(
            f"'{target}' cannot be made",
            why=f"'{target.parent}' is not writable",
            fix="`--to FILE` writes the record elsewhere; `surgery verify CKPT --like-manifest FILE` uses it"
            if not option
            else "name a file in a directory that you may write to",
        )


def put_record(
    target: Path, content: bytes, check: Callable[[], None], *, is_own: bool = True
) -> None:
    """Give the record its name, whole or not at all, if ``check`` finds the checkpoint as it was, before and after.

    A manager that deletes the step meanwhile lists its files first: one that comes or goes then fails it. So the record
    is written outside of the step, where that can be, and goes at once where the step turns out to be going. ``is_own``
    is False for a file elsewhere, which no manager knows.

    Raises:
        CheckpointError: what ``check`` raises.
        WriteError: the file cannot be written.
    """
    if isinstance(target, BucketPath):
        _put_in_bucket(target, content, check)
        Completed.now(target)
        return
    try:
        draft = _draft_of(target, is_own=is_own)
        with uninterrupted():
            try:
                _put_on_disk(draft, target, content, check)
            finally:
                _delete(draft)
    except OSError as error:
        try:
            check()
        except CheckpointError as changed:
            raise with_aftermath(changed) from error
        raise with_aftermath(write_failed(str(target), error)) from error
    except CheckpointError as error:
        with_aftermath(error)
        raise


def _put_on_disk(draft: Path, target: Path, content: bytes, check: Callable[[], None]) -> None:
    older = filesystem.read(target) if filesystem.is_file(target) else None
    put_durably(draft, content)
    check()
    rename(draft, target)
    try:
        check()
    except CheckpointError:
        _put_back(older, draft, target)
        raise
    stands = Completed.now(target)
    stands.lacks = NOT_LASTING
    sync_directory(target.parent)
    stands.lacks = NO_REPORT


def _delete(made: Path) -> None:
    """Remove what this run has made; what cannot be removed is said."""
    try:
        filesystem.delete(made)
    except OSError:
        if filesystem.is_taken(made):
            remaining.append(made)


def _put_in_bucket(target: BucketPath, content: bytes, check: Callable[[], None]) -> None:
    """As ``put_record``; an object is there whole or not at all, and only in the place of the one that was read."""
    try:
        with uninterrupted():
            older = read_anew(target) if filesystem.is_file(target) else None
            check()
            _put_after(target, older, content)
            try:
                check()
            except CheckpointError:
                if older is None:
                    filesystem.delete(target)
                else:
                    _put_after(target, content, older)
                raise
    except OSError as error:
        check()
        raise write_failed(str(target), error) from error


def _put_after(target: BucketPath, older: bytes | None, content: bytes) -> None:
    """Write an object where ``older`` stands, or nothing; an answer that was lost may have done so all the same.

    Raises:
        OSError: something else stands there.
    """
    try:
        if older is None:
            with filesystem.create(target) as file:
                file.write(content)
        else:
            filesystem.replace_as_found(target, content)
    except FileExistsError:
        if read_anew(target) != content:
            raise


def _put_back(older: bytes | None, draft: Path, target: Path) -> None:
    """What stood at the target before: another record, with the history of the checkpoint, or nothing."""
    if older is None or not filesystem.exists(target):
        _delete(target)
        return
    put_durably(draft, older)
    rename(draft, target)


def _draft_of(target: Path, *, is_own: bool) -> Path:
    """Where the record is written before it gets its name: beside the folder that it goes into, else in it."""
    own, around = filesystem.absolute(target).parent, filesystem.absolute(target).parent.parent
    is_near = filesystem.status(own).st_dev == filesystem.status(around).st_dev
    beside = own if is_own and is_near and may_write_into(around) else filesystem.absolute(target)
    return draft_of(target, beside)


def gone(place: Path, file: Path | None = None) -> CheckpointError:
    """The error for a checkpoint that vanishes while it is sealed, or for a file of one that still stands."""
    return CheckpointError(
        f"'{file or place}' is gone",
        why="it was removed or moved while "
        + ("it" if file is None else f"'{place}'")
        + " was sealed: a training run may have deleted an old step",
        fix=worded("{}; name a step that stays", NOTHING_LEFT)
        if file is None
        else worded(
            "{}; name a step that stays, or copy this from where it is whole", NOTHING_LEFT
        ),
    )
