"""The new checkpoint before it has its name: built beside the destination, renamed once, or removed."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from surgery_cli.errors import DestinationError, WriteError
from surgery_cli.store.links import exchange, rename_exclusively
from surgery_cli.store.listing import (
    SET_ASIDE_SUFFIX,
    STAGING_MARK,
    is_leftover,
    unfinished_name,
)


def check_destination(destination: Path, source: Path, *, force: bool) -> None:
    """Refuse a destination that must not be written, before any work.

    ``source`` is everything that must not change: the root that holds the step which is read.

    Raises:
        DestinationError: it exists (without ``force``), lies in the source, is the source, or holds it.
    """
    real, origin = _real(destination), source.resolve()
    if unfinished_name(real.name) is not None or is_leftover(real.name):
        raise DestinationError(
            f"'{destination}' has the name of an unfinished save",
            why="readers, this program among them, refuse such names",
            fix="name another directory",
        )
    if real == origin:
        raise DestinationError(
            f"'{destination}' is the source itself",
            why="the source is never written to",
            fix="name another directory",
        )
    if origin in real.parents:
        raise DestinationError(
            f"'{destination}' lies inside the source '{origin}'",
            why="the source is never written to",
            fix="name a directory outside of it",
        )
    if real in origin.parents:
        raise DestinationError(
            f"'{destination}' holds the source '{origin}'",
            why="replacing it would remove the source",
            fix="name another directory",
        )
    if os.path.lexists(destination) and not force:
        raise _exists(destination)
    parent = real.parent
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir():
        raise DestinationError(
            f"'{destination}' cannot be made", why=f"'{parent}' is not a directory"
        )
    if not os.access(parent, os.W_OK | os.X_OK):
        raise DestinationError(
            f"'{destination}' cannot be made",
            why=f"'{parent}' is not writable",
            fix="name a directory that you may write to",
        )


def _exists(destination: Path) -> DestinationError:
    return DestinationError(
        f"the destination '{destination}' exists",
        why="nothing is overwritten unless that is asked for",
        fix="name another, or add `--force` to replace it once the new one is complete",
    )


def _real(path: Path) -> Path:
    """The path with its parents' symbolic links followed, its own not."""
    absolute = Path(os.path.abspath(path))
    return absolute.parent.resolve() / absolute.name


completed: Final[list[Path]] = []
"""Destinations that got their names in this process: what a program that is interrupted late must say."""


class Staging:
    """A context: inside, ``directory`` is where to build; ``commit`` gives it its name; else nothing is left.

    The directory stands in the destination's parent, under a name that checkpoint managers and this program
    recognise as unfinished.
    """

    def __init__(self, destination: Path, *, force: bool = False) -> None:
        self.destination = _real(destination)
        self.force = force
        self.directory = self.destination.with_name(
            f".{self.destination.name}{STAGING_MARK}{secrets.token_hex(4)}"
        )
        self._made_parents: list[Path] = []
        self._is_committed = False

    @property
    def new(self) -> Path:
        """What will become the destination: a file or directory inside the staging directory."""
        return self.directory / self.destination.name

    def __enter__(self) -> Self:
        missing = []
        parent = self.destination.parent
        while not parent.exists():
            missing.append(parent)
            parent = parent.parent
        try:
            for folder in reversed(missing):
                folder.mkdir()
                self._made_parents.append(folder)
            self.directory.mkdir(
                0o700
            )  # the source may be private; `follow_modes` comes before the name
        except OSError as error:
            self._remove_parents()
            raise WriteError(
                f"'{self.directory}' cannot be made", why=error.strerror or str(error)
            ) from error
        except BaseException:  # a signal between these lines: `__exit__` is not called then
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with uninterrupted():
            self._remove()

    def _remove(self) -> None:
        """Remove what was built, unless it has got its name."""
        shutil.rmtree(self.directory, ignore_errors=True)
        if not self._is_committed:
            self._remove_parents()

    def _remove_parents(self) -> None:
        for folder in reversed(self._made_parents):
            try:
                folder.rmdir()
            except OSError:
                break  # somebody else has put something there

    def commit(self) -> None:
        """Make everything durable, then let the destination appear, whole.

        Once it has its name the run is done: a signal that comes then no longer ends it as interrupted.

        Raises:
            DestinationError: it has come to exist meanwhile.
        """
        sync_tree(self.new)
        with uninterrupted():
            self._give_name()

    @property
    def _companion(self) -> Path:
        """The record of a checkpoint that is a single file stands beside it, and gets its name with it."""
        return self.destination.with_name(f"{self.destination.name}.surgery.json")

    def _give_name(self) -> None:
        try:
            rename_exclusively(self.new, self.destination)
        except FileExistsError:
            if not self.force:
                raise _exists(self.destination) from None
            self._replace()
        self._is_committed = True
        completed.append(self.destination)
        built = self.directory / self._companion.name
        if built.exists():
            sync_tree(built)
            built.replace(self._companion)
        else:
            self._companion.unlink(
                missing_ok=True
            )  # it would speak of the checkpoint that stood here
        sync_directory(self.destination.parent)
        for folder in self._made_parents:
            sync_directory(folder.parent)

    def _replace(self) -> None:
        """Put the new in the place of the old; the old goes only once the new stands.

        What an earlier interrupted replacement set aside goes too: it came before what is replaced now.
        """
        if (left := set_aside_of(self.destination)) is not None:
            remove(left)
        if exchange(self.new, self.destination):
            return  # the old one now lies in the staging directory, and goes with it
        old = self.destination.with_name(self.destination.name + SET_ASIDE_SUFFIX)
        self.destination.rename(old)
        self.new.rename(self.destination)
        sync_directory(self.destination.parent)
        remove(old)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """While the block runs, requests to end are passed over; only the main thread gets any."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def set_aside_of(destination: Path) -> Path | None:
    """``DST.surgery-old``, if an interrupted exchange left it."""
    real = _real(destination)
    old = real.with_name(real.name + SET_ASIDE_SUFFIX)
    return old if os.path.lexists(old) else None


def recover_old(destination: Path) -> Path | None:
    """Restore ``DST.surgery-old`` that an interrupted exchange left; returns what was restored.

    Where something else stands at the destination by now, both are left as they are: whose it is cannot be told.
    """
    real, old = _real(destination), set_aside_of(destination)
    if old is None or os.path.lexists(real):
        return None
    old.rename(real)
    sync_directory(real.parent)
    return real


def remove(path: Path) -> None:
    """Remove a file, a link, or a directory with everything in it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sync_tree(path: Path) -> None:
    """fsync every file and directory at and below ``path``."""
    for file, is_directory in _walk(path):
        if is_directory:
            sync_directory(file)
        else:
            descriptor = os.open(file, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def sync_directory(path: Path) -> None:
    """fsync a directory, so that the names in it last."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _walk(path: Path) -> Iterator[tuple[Path, bool]]:
    if not path.is_dir():
        yield path, False
        return
    for folder, _, files in os.walk(path):
        for name in files:
            yield Path(folder, name), False
        yield Path(folder), True
