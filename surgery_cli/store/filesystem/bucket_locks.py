"""Who writes to a destination in a bucket: an object beside it, which only one of two runs can make."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from surgery_cli.inputs.buckets import BucketPath, Replaced
from surgery_cli.inputs.json_decoding import decode_json
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.bucket import Buckets
from surgery_cli.store.filesystem.bucket_guard import Guard
from surgery_cli.store.filesystem.listing import holds_t5x
from surgery_cli.store.filesystem.names import STAGING_MARK
from surgery_cli.store.filesystem.processes import Claim, Owner, State, claim_by
from surgery_cli.store.filesystem.protocol import COMMIT_MARK

T = TypeVar("T")

LEVELS = 3
"""An item lies in a step, a step in a root: each of them may be a destination."""


def lock_of(destination: Path) -> Path:
    """The object that keeps other runs away while one writes to a destination."""
    return destination.with_name(f".{destination.name}{STAGING_MARK}lock")


def beside(destination: Path) -> list[Path]:
    """What runs to a destination have made beside it, but for the lock: whoever has that may remove the rest."""
    filesystem.forget(destination.parent)
    begin, lock = f".{destination.name}{STAGING_MARK}", lock_of(destination)
    entries = filesystem.entries_if_any(destination.parent)
    found = [lock.with_name(entry.name) for entry in entries if entry.name.startswith(begin)]
    return [place for place in found if place != lock]


def guarded(
    destination: Path, check: Callable[[], None], *, seen_may_go: bool = False
) -> AbstractContextManager[Guard]:
    """What is written inside to a destination in a bucket comes in the place of nothing, or of what this run has made,
    and nothing else is deleted there; ``check`` raises an error where the destination is another run's by now.
    ``seen_may_go``: whatever stands there may be deleted.
    """
    system = filesystem.system_of(destination)
    assert isinstance(system, Buckets)
    return system.guarded(BucketPath(destination), check, seen_may_go=seen_may_go)


def lock_around(place: Path, levels: int = LEVELS) -> Path | None:
    """The lock of a place, or of what it lies in: somebody writes there, or was killed meanwhile."""
    for folder in [place, *place.parents][:levels]:
        if isinstance(folder, BucketPath) and folder.key:
            lock = lock_of(folder)
            if filesystem.exists(lock):
                return lock
    return None


def is_committed(folder: Path, files: frozenset[str] | set[str]) -> bool:
    """Whether a step or flat checkpoint with these files in it is whole, as far as a mark in it tells.

    Where Orbax asks for no mark, and of T5X, nobody may be writing to it: of us everyone writes one.
    """
    if COMMIT_MARK in files:
        return True
    needs_mark = filesystem.needs_commit_mark(folder) and not holds_t5x(folder)
    return not needs_mark and lock_around(folder) is None


def said_in(content: bytes, kind: type[T]) -> T | None:
    """What the content of a lock says, as far as ``kind`` knows it; None where it says something else."""
    try:
        return decode_json(content, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def content_of(lock: Path) -> bytes:
    """What a lock says: of the one that was seen, or of the one in its place.

    Raises:
        FileNotFoundError: there is none any more.
    """
    while True:
        try:
            return filesystem.read(lock)
        except Replaced:
            filesystem.forget(lock)


def claim_of(lock: Path) -> Claim:
    """What the lock of somebody else says.

    Raises:
        FileNotFoundError: it has just gone.
    """
    name = lock.name[1 : -len(f"{STAGING_MARK}lock")]
    destination = str(lock.with_name(name))
    while True:
        filesystem.forget(lock)
        content = content_of(lock)
        owner, kept = said_in(content, Owner), said_in(content, _Kept)
        goes_on = ", or the command with `--resume` that was typed then goes on" if kept else ""
        claim = claim_by(owner, lock, destination, goes_on=goes_on)
        if claim.state is not State.DEAD:
            return claim
        filesystem.forget(lock)  # a run that has ended since has removed it as its last deed
        if content_of(lock) == content:
            return claim


class _Kept(msgspec.Struct):
    """A lock that says where a journal is."""

    journal: str


class Lock:
    """The object beside a destination, which this run has made, or is about to make."""

    def __init__(self, destination: Path, content: bytes) -> None:
        """``content`` tells this run from all others."""
        self.place = lock_of(destination)
        self._content = content
        self._made: int | None = None
        """The object that this run has made, as ``status`` tells it."""

    def take(self) -> None:
        """Make it; an answer that was lost may have made it all the same.

        Raises:
            FileExistsError: another run has it.
        """
        try:
            self._made = filesystem.put(self.place, self._content, exclusively=True)
        except FileExistsError:
            if not self.is_held():
                raise

    def take_over(self, left: bytes) -> None:
        """Make it this run's, which was another's; an answer that was lost may have done so all the same.

        Raises:
            FileExistsError: it is not what that run has ``left``, any more; or FileNotFoundError: it has gone.
        """
        try:
            filesystem.forget(self.place)
            if content_of(self.place) != left:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(self.place))
            filesystem.replace_as_found(self.place, self._content)
        except (FileNotFoundError, FileExistsError):
            if not self.is_held():  # which looks anew
                code = errno.EEXIST if filesystem.exists(self.place) else errno.ENOENT
                raise OSError(code, os.strerror(code), str(self.place)) from None

    @property
    def content(self) -> bytes:
        """What tells this run from all others; its marks hold the same."""
        return self._content

    def mark(self, place: Path) -> None:
        """Let the service copy it to ``place``, which it does while this run has it alone.

        Between a look at it and a write of a mark, this process may stand still, and another run take over.

        Raises:
            FileExistsError: it is another run's by now, or gone.
        """
        with suppress(FileNotFoundError, Replaced):
            if self._is_seen():
                filesystem.copy(self.place, place)
                return
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(self.place))

    def is_held(self) -> bool:
        """True if it stands as this run has made it."""
        with suppress(FileNotFoundError):
            filesystem.status_now(self.place)
            return self._is_seen()
        return False

    def _is_seen(self) -> bool:
        """True if what was seen there last is this run's. Raises FileNotFoundError."""
        is_made = filesystem.status(self.place).st_ino == self._made
        return is_made or filesystem.read(self.place) == self._content

    def release(self) -> None:
        """Delete it, as it was seen last, unless that is another run's."""
        with suppress(FileNotFoundError):
            if self._is_seen():
                filesystem.delete_as_found(self.place)
