"""The new checkpoint before it has its name: built beside the destination, renamed once, or removed."""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path
from shlex import quote
from types import TracebackType
from typing import Self

from surgery_cli.errors import RemovedError, WriteError
from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.durability import (
    exchange,
    rename,
    rename_exclusively,
    sync_directory,
    sync_tree,
)
from surgery_cli.store.filesystem.interruptions import uninterrupted
from surgery_cli.store.filesystem.listing import SET_ASIDE_SUFFIX, STAGING_MARK
from surgery_cli.store.filesystem.owners import OWNER_FILE, make_owned, name_before
from surgery_cli.store.filesystem.processes import Owner
from surgery_cli.store.write.aftermath import (
    NO_REPORT,
    NOT_LASTING,
    Completed,
    begin_anew,
    kept,
    remaining,
)
from surgery_cli.store.write.built_files import (
    Stood,
    check_built,
    check_replaced,
    names_below,
    raise_of_built,
)
from surgery_cli.store.write.destination import already_there, real_path
from surgery_cli.store.write.journal import Journal, Placed


class Staging:
    """A context: inside, ``directory`` is where to build; ``commit`` gives it its name; else nothing is left.

    The directory stands in the destination's parent, under a name that checkpoint managers and this program
    recognise as unfinished.
    """

    journal: Journal | None = None
    """Where what is done is written down, if another run may go on from there."""

    def __init__(self, destination: Path, replaces: Stood | None = None) -> None:
        """``replaces``: what stood there when the run began, if that may be replaced."""
        self.destination = real_path(destination)
        self._replaces = replaces
        self.directory = self.destination.with_name(
            f".{self.destination.name}{STAGING_MARK}{secrets.token_hex(4)}"
        )
        self._made_parents: list[Path] = []
        self._is_committed = False
        self._is_needed = False
        self._built: frozenset[str] = frozenset()

    @property
    def new(self) -> Path:
        """What will become the destination: a file or directory inside the staging directory."""
        return self.directory / self.destination.name

    def __enter__(self) -> Self:
        begin_anew()
        missing = []
        parent = self.destination.parent
        while not filesystem.exists(parent):
            missing.append(parent)
            parent = parent.parent
        try:
            for folder in reversed(missing):
                filesystem.make_folder(folder)
                self._made_parents.append(folder)
            make_owned(self.directory)
        except OSError as error:
            self._remove()
            kind = RemovedError if isinstance(error, FileNotFoundError) else WriteError
            why = error.strerror or str(error)
            raise kind(f"'{self.directory}' cannot be made", why=why) from error
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
        raise_of_built(self.directory, error)

    def _remove(self) -> None:
        """Remove what was built, unless it has got its name."""
        if self._is_needed:
            return
        named = name_before(self.directory, Owner.here())
        with suppress(OSError):  # its name tells the owner also once the owner's file is gone
            rename(self.directory, named)
        for directory in (self.directory, named):
            with suppress(OSError):
                filesystem.delete_below(directory)
            if filesystem.is_taken(directory):
                remaining.append(directory)
        if not self._is_committed:
            self._remove_parents()

    def _remove_parents(self) -> None:
        for folder in reversed(self._made_parents):
            try:
                filesystem.delete_folder(folder)
            except OSError:
                break  # somebody else has put something there

    def begun(self, placed: Placed) -> None:
        """Everything stands in its place that is not computed: said only where there is a journal."""

    def is_built(self) -> None:
        """What stands now is read back: none of it may go before it has its name."""
        self._built = names_below(self.new)

    mark_content = b""
    """What the marks hold that are still to come: none are."""

    def look_at_lock(self) -> None:
        """``commit`` comes next: there is a lock in a bucket only."""

    def commit(self) -> None:
        """Make everything durable, then let the destination appear, whole.

        Once it has its name the run is done: a signal that comes then no longer ends it as interrupted.

        Raises:
            DestinationError: it has come to exist meanwhile.
            RemovedError: some of what was built has gone.
        """
        sync_tree(self.new)
        check_built(self.new, self._built)
        with uninterrupted():
            self._give_name()

    @property
    def _companion(self) -> Path:
        """The record of a checkpoint that is a single file stands beside it, and gets its name with it."""
        return self.destination.with_name(f"{self.destination.name}.surgery.json")

    def _give_name(self) -> None:
        """Let the old record go, the new checkpoint come, and then its record.

        Whoever looks in between finds a checkpoint without a record, never one beside the record of another.
        """
        if self._replaces is not None:
            check_replaced(self.destination, self._replaces)
        elif filesystem.is_taken(self.destination):
            raise already_there(self.destination)
        aside = self.directory / f"{OWNER_FILE}.record"
        has_record = filesystem.is_taken(self._companion)
        if has_record:
            rename(self._companion, aside)
        try:
            if (
                has_record
            ):  # after a power cut, too, no checkpoint stands beside the record of another
                sync_directory(self.destination.parent)
            replaced = self._take_place()
        except BaseException:
            if has_record:
                self._put_back(aside)
            raise
        self._is_committed = True
        self._complete(Completed.now(self.destination), replaced)

    def _put_back(self, record: Path) -> None:
        """The old record belongs beside the old checkpoint; where that fails too, it is the one thing that stays."""
        try:
            rename(record, self._companion)
        except OSError:
            self._is_needed = True
            kept.append(
                f"'{self.directory}' keeps the record of '{self.destination}', which could not be put back:"
                f" `mv {quote(str(record))} {quote(str(self._companion))}`"
            )

    def _complete(self, stands: Completed, replaced: Path | None) -> None:
        """What is still to be done once the destination has its name; ``stands`` knows what is missing if it fails."""
        built = self.directory / self._companion.name
        beside = (
            "" if replaced is None else f"'{replaced}', which stood there before, is not removed"
        )
        and_beside = beside and f"; {beside}"
        if filesystem.exists(built):
            stands.lacks = f"its record '{self._companion}' is missing{and_beside}"
            sync_tree(built)
            rename(built, self._companion)
        stands.lacks = NOT_LASTING + and_beside
        sync_directory(self.destination.parent)
        for folder in self._made_parents:
            sync_directory(folder.parent)
        if replaced is not None:
            stands.lacks = beside
            remove(replaced)
        stands.lacks = NO_REPORT

    def _take_place(self) -> Path | None:
        """Give the new checkpoint its name; what stood there, if that is still to be removed."""
        try:
            rename_exclusively(self.new, self.destination)
        except FileExistsError:
            if self._replaces is None:
                raise already_there(self.destination) from None
            return self._replace()
        return None

    def _replace(self) -> Path | None:
        """Put the new in the place of the old, which goes only once the new stands; returns where it is then."""
        if exchange(self.new, self.destination):
            return None  # the old one now lies in the staging directory, and goes with it
        old = self.destination.with_name(self.destination.name + SET_ASIDE_SUFFIX)
        rename(self.destination, old)
        try:
            rename(self.new, self.destination)
        except OSError:
            self._bring_back(old)
            raise
        return old

    def _bring_back(self, old: Path) -> None:
        """Give what was set aside its name again; where that fails too, the user is told where it is."""
        try:
            rename(old, self.destination)
        except OSError:
            kept.append(
                f"'{old}' is what stood at '{self.destination}', and could not be put back:"
                f" `mv {quote(str(old))} {quote(str(self.destination))}`, or the same command once that is possible"
            )


def set_aside_of(destination: Path) -> Path | None:
    """``DST.surgery-old``, if an interrupted exchange left it."""
    if isinstance(destination, BucketPath):  # nothing is renamed there
        return None
    real = real_path(destination)
    old = real.with_name(real.name + SET_ASIDE_SUFFIX)
    return old if filesystem.is_taken(old) else None


def recover_old(destination: Path) -> Path | None:
    """Restore ``DST.surgery-old`` that an interrupted exchange left; returns what was restored.

    Where something else stands at the destination by now, both are left as they are: whose it is cannot be told.
    """
    real, old = real_path(destination), set_aside_of(destination)
    if old is None or filesystem.is_taken(real):
        return None
    rename(old, real)
    sync_directory(real.parent)
    return real


def remove(path: Path) -> None:
    """Remove a file, a link, or a directory with everything in it."""
    if filesystem.is_folder(path) and not filesystem.is_link(path):
        filesystem.delete_below(path)
    else:
        filesystem.delete(path)
