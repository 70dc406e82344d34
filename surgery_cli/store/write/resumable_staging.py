"""The new checkpoint before it has its name, kept if the run is cut short: another one goes on from there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from types import TracebackType
from typing import Final, Self

from surgery_cli.draft.check import JudgedRefusal
from surgery_cli.errors import (
    CheckpointError,
    DestinationError,
    RemovedError,
    SurgeryError,
    WriteError,
)
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.durability import sync_directory, sync_tree
from surgery_cli.store.filesystem.interruptions import uninterrupted
from surgery_cli.store.filesystem.modes import let_owner_write
from surgery_cli.store.filesystem.owners import take_over
from surgery_cli.store.filesystem.processes import State
from surgery_cli.store.orbax.stored_values import NOT_RENAMED
from surgery_cli.store.write.aftermath import begin_anew, kept
from surgery_cli.store.write.built_files import Stood, raise_of_built
from surgery_cli.store.write.journal import Head, Journal, Placed, Whole, journal_in, new_journal
from surgery_cli.store.write.leftovers import Left, Leftover, is_over, leftovers_of
from surgery_cli.store.write.set_aside import REPLACING_FILE
from surgery_cli.store.write.staging import Staging
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.invocation import the_same
from surgery_cli.words.quantities import byte_text


class ResumableStaging(Staging):
    """As ``Staging``; what is done is written down, and stays where the run is cut short."""

    journal: Journal

    def __init__(
        self,
        destination: Path,
        head: Head,
        leaves: Sequence[LeafPath],
        left: Leftover | None,
        replaces: Stood | None = None,
    ) -> None:
        """``left``: what an earlier run has kept, of the same ``head``; ``leaves``: those of the draft."""
        super().__init__(destination, replaces)
        self._head = head
        self._leaves = leaves
        self._left = left

    def __enter__(self) -> Self:
        if self._left is None:
            super().__enter__()
            try:
                self.journal = new_journal(self.directory, self._head)
                self._refuse_others()
            except BaseException:
                self._remove()
                raise
        else:
            begin_anew()
            try:
                self._go_on(self._left)
            except BaseException:  # a signal, say: `__exit__` is not called then
                if filesystem.is_folder(self.directory):
                    self._say_kept()
                raise
        self.journal.of(self._leaves)
        return self

    def _go_on(self, left: Leftover) -> None:
        try:
            with uninterrupted():
                self.directory = take_over(left.path)
                journal = journal_in(self.directory)
                assert journal is not None
                self.journal = journal
        except FileNotFoundError:
            raise being_written(left) from None
        filesystem.delete(self.directory / REPLACING_FILE)
        let_owner_write(self.directory)
        if journal.placed is None:  # it was cut short before anything was computed
            filesystem.delete_below(self.new)
            return
        for prefix, entries in filesystem.below(self.new):
            for entry in entries:
                if entry.is_file and entry.name.endswith(NOT_RENAMED):
                    filesystem.delete(self.new / prefix / entry.name)

    def _refuse_others(self) -> None:
        """Of two runs that begin at once, none may write what the other will take for its own."""
        for left in leftovers_of(self.destination):
            if left.path != self.directory and left.state is State.LIVING and left.journal:
                raise being_written(left)

    def begun(self, placed: Placed) -> None:
        """Everything that is not computed stands in its place."""
        sync_tree(self.directory)
        sync_directory(self.directory.parent)
        self.journal.note(placed)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_committed or error is None or not can_go_on(self.journal, error):
            super().__exit__(kind, error, traceback)
            return
        if not filesystem.is_taken(self.directory):
            raise RemovedError(
                f"what was built in '{self.directory}' is gone: another run has taken it over, or it was cleaned",
                why="this run was stopped meanwhile, or said to be over",
                fix=f"it keeps nothing; `surgery inspect {quote(str(self.destination))}` shows what stands there",
            ) from error
        with uninterrupted():
            self._say_kept(error)
        raise_of_built(self.directory, error)

    def _say_kept(self, error: BaseException | None = None) -> None:
        is_in_the_way = self._replaces is None and filesystem.is_taken(self.destination)
        command, once = the_same(*["--force"] * is_in_the_way), NOT_REFUSED * is_refused(error)
        kept.append(
            what_is_kept(self.directory, self.destination, self.journal, command, once=once)
        )

    def _give_name(self) -> None:
        self.journal.note(Whole(filesystem.status(self.new).st_ino))
        super()._give_name()


NOT_REFUSED: Final = (
    "once nothing refuses it (with another rule, `--probe`, `--tolerance` or `--allow-non-finite`)"
)


def is_refused(error: BaseException | None) -> bool:
    """True for what is said beside the edits, with which the draft is the same."""
    return isinstance(error, JudgedRefusal)


def can_go_on(journal: Journal, error: BaseException) -> bool:
    """True unless the same draft would come to the same end."""
    if journal.placed is None or journal.is_withdrawn:
        return False
    if is_refused(error) and not journal.done_bytes:
        return False
    passing = (CheckpointError, WriteError, DestinationError, JudgedRefusal)
    return not isinstance(error, SurgeryError) or isinstance(error, passing)


def what_is_kept(
    place: Path,
    destination: Path,
    journal: Journal,
    command: str,
    *,
    once: str = "",
    may_go: bool = True,
) -> str:
    """What a run has kept, and the commands that go on from there, and, if it ``may_go``, that remove it.

    ``once``: what the first of them waits for.
    """
    kept = (
        f"'{place}' keeps {amount_of(journal)}: {command} goes on from there{once and f' {once}'}"
    )
    return f"{kept}, `surgery clean {quote(str(destination))}` removes it" if may_go else kept


def goes_on(left: Left) -> str:
    """What would go on from what was kept; whether it may is not looked at: that would cost the sources a look."""
    assert left.journal is not None
    assert left.journal.head is not None
    command = left.journal.head.command
    stale = "" if is_over(left) or "--stale" in command else " with `--stale`"
    return f"{command}{stale} goes on from there, if its plan and what it reads are as they were"


def amount_of(journal: Journal) -> str:
    """How much of the values is done."""
    assert journal.head is not None
    total = journal.head.bytes
    if not total:
        return "what is done"
    return f"what is done, {byte_text(journal.done_bytes)} of {byte_text(total)}"


def being_written(left: Left) -> DestinationError:
    """The error for what another run is building."""
    number = f" (process {left.owner.pid})" if left.owner else ""
    return DestinationError(
        f"another run{number} is writing to the same destination, in '{left.path}'",
        why="what it has done can be gone on from once it has ended",
        fix="wait for it, or end it",
    )
