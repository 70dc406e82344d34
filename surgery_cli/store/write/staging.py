"""The new checkpoint before it has its name: built beside the destination, renamed once, or removed."""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path
from shlex import quote
from types import TracebackType
from typing import Self

from surgery_cli.errors import RemovedError, WriteError
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.durability import (
    exchange,
    rename,
    rename_exclusively,
    rename_if_free,
    sync_directory,
    sync_tree,
)
from surgery_cli.store.filesystem.interruptions import uninterrupted
from surgery_cli.store.filesystem.names import STAGING_MARK
from surgery_cli.store.filesystem.owners import make_owned, name_before
from surgery_cli.store.filesystem.processes import Owner
from surgery_cli.store.write.aftermath import (
    NO_REPORT,
    NOT_LASTING,
    Completed,
    begin_anew,
    kept,
    remaining,
    set_aside,
)
from surgery_cli.store.write.built_files import (
    Stood,
    check_built,
    check_replaced,
    names_below,
    raise_of_built,
    what_stands,
)
from surgery_cli.store.write.commit_marks import companion_of, older_records
from surgery_cli.store.write.destination import already_there, real_path
from surgery_cli.store.write.journal import Journal, Placed
from surgery_cli.store.write.set_aside import (
    OLD_RECORD,
    aside_of,
    put_aside,
    remove_known,
    remove_replaced,
    with_record,
    write_replacing,
)


class Staging:
    """A context: inside, ``directory`` is where to build; ``commit`` gives it its name; else nothing is left.

    The directory stands in the destination's parent, under a name that checkpoint managers and this program
    recognise as unfinished.
    """

    journal: Journal | None = None
    """Where what is done is written down, if another run may go on from there."""

    def __init__(
        self, destination: Path, replaces: Stood | None = None, stale: Path | None = None
    ) -> None:
        """``replaces``: what stood there when the run began, if that may go; ``stale``: or a record beside it."""
        self.destination = real_path(destination)
        self._companion = companion_of(self.destination)  # which gets its name with a single file
        self._replaces = replaces
        self._stood, beside = with_record(replaces or {})
        self._stood_beside = beside if stale is None else what_stands(stale)
        own = f".{self.destination.name}{STAGING_MARK}{secrets.token_hex(4)}"
        self.directory = self.destination.with_name(own)
        self._made_parents: list[Path] = []
        self._is_committed = False
        self._is_needed = False
        self._built: frozenset[str] = frozenset()
        self._before_exchange: Stood = {}

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
                remove_replaced(directory)
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

    def _give_name(self) -> None:
        """Let the old record go, the new checkpoint come, and then its record.

        Whoever looks in between finds a checkpoint without a record, never one beside the record of another.
        """
        if self._replaces is not None:
            check_replaced(self.destination, self._stood)
            self._before_exchange = write_replacing(self.directory, self._replaces, self.new)
        elif filesystem.is_taken(self.destination):
            raise already_there(self.destination)
        aside = self.directory / OLD_RECORD
        # beside a folder that holds its own, it is nobody's that this run knows
        known = (self.destination, self.new, self.directory / self._companion.name)
        has_record = any(map(filesystem.is_file, known)) and filesystem.is_taken(self._companion)
        if has_record:
            rename(self._companion, aside)
        try:
            if has_record:  # after a power cut, too, none stands beside another checkpoint
                check_replaced(self._companion, self._stood_beside, aside)
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
            rename_if_free(record, self._companion)
        except OSError:
            self._is_needed = True
            kept.append(
                f"'{self.directory}' keeps the record of '{self.destination}', which could not be put back:"
                f" `mv -n {quote(str(record))} {quote(str(self._companion))}`"
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
            try:
                rename_if_free(built, self._companion)
            except FileExistsError:  # it came just now, beside what was replaced
                put_aside(self._companion, self._companion)
                rename_if_free(built, self._companion)
        stands.lacks = NOT_LASTING + and_beside
        sync_directory(self.destination.parent)
        for folder in self._made_parents:
            sync_directory(folder.parent)
        for record in older_records(self.destination) if self._replaces is not None else ():
            filesystem.delete(record)  # of what was replaced
        if replaced is not None:
            stands.lacks = beside
            if not remove_known(replaced, self._stood):
                set_aside.append(replaced)
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
            self._look_at_exchanged()
            return None  # the old one now lies in the staging directory, and goes with it
        old = aside_of(self.destination)
        rename_if_free(self.destination, old)
        try:
            check_replaced(self.destination, self._stood, old)
            rename_exclusively(self.new, self.destination)
        except BaseException as error:
            self._bring_back(old)
            if isinstance(error, FileExistsError):
                check_replaced(self.destination, {})
            raise
        return old

    def _look_at_exchanged(self) -> None:
        """What came to the old one before it was exchanged is no part of it: then both go back to their places."""
        try:
            check_replaced(self.destination, self._stood, self.new)
        except BaseException:
            if self._is_exchanged_back():
                if self.journal is not None and what_stands(self.new) != self._before_exchange:
                    self.journal.is_withdrawn = True  # what came there is no part of it, either
                raise
            try:
                put_aside(self.new, self.destination)
            except OSError:
                self._is_needed = True
                set_aside.append(self.new)

    def _is_exchanged_back(self) -> bool:
        with suppress(OSError):
            return exchange(self.new, self.destination)
        return False

    def _bring_back(self, old: Path) -> None:
        """Give what was set aside its name again; where that fails too, the user is told where it is."""
        try:
            rename_if_free(old, self.destination)
        except OSError:
            kept.append(
                f"'{old}' is what stood at '{self.destination}', and could not be put back:"
                f" `mv -n {quote(str(old))} {quote(str(self.destination))}`, or the same command once that is possible"
            )


def remove(path: Path) -> None:
    """Remove a file, a link, or a directory with everything in it."""
    if filesystem.is_folder(path) and not filesystem.is_link(path):
        filesystem.delete_below(path)
    else:
        filesystem.delete(path)
