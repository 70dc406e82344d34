"""The file of a record that is added to a checkpoint as it stands: where it may be, and how it gets its name."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path

from surgery_cli.errors import CheckpointError, DestinationError, WriteError
from surgery_cli.store.filesystem.listing import STAGING_MARK
from surgery_cli.store.write.staging import sync_directory, uninterrupted


def check_record_target(target: Path, place: Path, *, is_own: bool) -> None:
    """The record must have a place: beside the data, or at a name that is free and outside of the checkpoint.

    Raises:
        DestinationError: it has none.
    """
    if not is_own and os.path.lexists(target):
        raise DestinationError(
            f"'{target}' exists",
            why="nothing is overwritten unless that is asked for",
            fix="name another file, or remove it first",
        )
    if not is_own and target.parent.resolve().is_relative_to(place.resolve()):
        raise DestinationError(
            f"'{target}' lies inside the checkpoint",
            why="readers would come upon it, and it would not be sealed itself",
            fix="name a file outside of it, or leave `--to` out",
        )
    if not target.parent.is_dir():
        raise DestinationError(
            f"'{target}' cannot be made",
            why=f"'{target.parent}' is no directory",
            fix="make it first, or name another",
        )
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise DestinationError(
            f"'{target}' cannot be made",
            why=f"'{target.parent}' is not writable",
            fix="`--to FILE` writes the record elsewhere; `surgery verify CKPT --like-manifest FILE` uses it",
        )


def put_record(target: Path, content: bytes, check: Callable[[], None]) -> None:
    """Give the record its name, whole or not at all, if ``check`` finds the checkpoint as it was, before and after.

    A manager that deletes the step meanwhile lists its files first: one that comes or goes then fails it. So the record
    is written outside of the step, where that can be, and goes at once where the step turns out to be going.

    Raises:
        CheckpointError: what ``check`` raises.
        WriteError: the file cannot be written.
    """
    try:
        draft = _folder_for(target) / f".{target.name}{STAGING_MARK}{secrets.token_hex(4)}"
        with uninterrupted():
            try:
                with draft.open("xb") as stream:
                    stream.write(content)
                    stream.flush()
                    os.fsync(stream.fileno())
                check()
                draft.replace(target)
                try:
                    check()
                except CheckpointError:
                    target.unlink(missing_ok=True)
                    raise
                sync_directory(target.parent)
            finally:
                draft.unlink(missing_ok=True)
    except OSError as error:
        check()
        raise WriteError(
            f"'{target}' cannot be written", why=error.strerror or str(error)
        ) from error


def _folder_for(target: Path) -> Path:
    """Where the record is written before it gets its name: beside the folder that it goes into, else in it."""
    own, around = target.parent, target.parent.parent
    is_near = own.stat().st_dev == around.stat().st_dev
    return around if is_near and os.access(around, os.W_OK | os.X_OK) else own


def gone(place: Path) -> CheckpointError:
    """The error for a checkpoint that vanishes while it is sealed."""
    return CheckpointError(
        f"'{place}' is gone",
        why="it was removed or moved while it was sealed: a training run may have deleted an old step",
        fix="nothing was left behind; name a step that stays",
    )
