"""Who writes to a destination in a bucket: an object beside it, which only one of two runs can make."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import COMMIT_MARK, STAGING_MARK

_LEVELS = 3
"""An item lies in a step, a step in a root: each of them may be a destination."""


def lock_of(destination: Path) -> Path:
    """The object that keeps other runs away while one writes to a destination."""
    return destination.with_name(f".{destination.name}{STAGING_MARK}lock")


def lock_around(place: Path) -> Path | None:
    """The lock of a place, or of what it lies in: somebody writes there, or was killed meanwhile."""
    for folder in [place, *place.parents][:_LEVELS]:
        if isinstance(folder, BucketPath) and folder.key:
            lock = lock_of(folder)
            if filesystem.exists(lock):
                return lock
    return None


def is_committed(folder: Path, files: frozenset[str] | set[str]) -> bool:
    """Whether a step or flat checkpoint with these files in it is whole, as far as a mark in it tells.

    Where Orbax asks for no mark, nobody may be writing to it: of us everyone writes one.
    """
    if COMMIT_MARK in files:
        return True
    return not filesystem.needs_commit_mark(folder) and lock_around(folder) is None


class Lock:
    """The object beside a destination, which this run has made, or is about to make."""

    def __init__(self, destination: Path, content: bytes) -> None:
        """``content`` tells this run from all others."""
        self.place = lock_of(destination)
        self._content = content

    def take(self) -> None:
        """Make it; an answer that was lost may have made it all the same.

        Raises:
            FileExistsError: another run has it.
        """
        try:
            with filesystem.create(self.place) as file:
                file.write(self._content)
        except FileExistsError:
            if not self.is_held():
                raise

    def take_over(self, left: bytes) -> None:
        """Make it this run's, which was another's; an answer that was lost may have done so all the same.

        Raises:
            FileExistsError: it is not what that run has ``left``, any more.
        """
        try:
            if filesystem.read_anew(self.place) != left:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(self.place))
            filesystem.replace_as_found(self.place, self._content)
        except (FileNotFoundError, FileExistsError):
            if not self.is_held():
                raise FileExistsError(
                    errno.EEXIST, os.strerror(errno.EEXIST), str(self.place)
                ) from None

    def is_held(self) -> bool:
        """True if it stands as this run has made it."""
        with suppress(FileNotFoundError):
            return filesystem.read_anew(self.place) == self._content
        return False

    def release(self) -> None:
        """Delete it, unless it is another run's by now."""
        if self.is_held():
            filesystem.delete_as_found(self.place)
