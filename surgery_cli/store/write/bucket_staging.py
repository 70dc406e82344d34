"""The new checkpoint where nothing can be renamed: built under its own name, whole once its mark is there."""

from __future__ import annotations

import json
import secrets
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from surgery_cli.errors import SurgeryError, WriteError
from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.background import in_background
from surgery_cli.store.filesystem.bucket_locks import Lock, guarded
from surgery_cli.store.filesystem.interruptions import uninterrupted
from surgery_cli.store.filesystem.links import Linker
from surgery_cli.store.filesystem.names import STAGING_MARK
from surgery_cli.store.filesystem.processes import Owner
from surgery_cli.store.write.aftermath import Completed, begin_anew, remaining
from surgery_cli.store.write.built_files import (
    Stood,
    check_replaced,
    check_versions,
    may_stand,
    raise_of_built,
    what_stands,
)
from surgery_cli.store.write.commit_marks import commit_marks, companion_of, is_whole
from surgery_cli.store.write.destination import already_there, take_lock, taken_over
from surgery_cli.store.write.half_replaced import left_half_replaced, not_replaced, untouched
from surgery_cli.store.write.inventory import inventory_of
from surgery_cli.store.write.journal import Journal, Placed
from surgery_cli.store.write.many_objects import delete_all, objects_at
from surgery_cli.store.write.replacement import Replacement, check_put, may_have_put


class BucketStaging:
    """As ``Staging``, in a bucket: inside, ``new`` is where to build; ``commit`` makes it whole; else nothing is left.

    An object that only one of two runs can make keeps the others away. Readers, Orbax among them, take what is built
    for unfinished until ``commit_success.txt`` is there, and that is written last; where Orbax asks for no such mark,
    that object says so. What ``force`` replaces stands until the new checkpoint is whole beside it.

    Nobody can see that a run is over which is said to be: it may have been stopped, and wake up when another one has
    finished. So its mark is a copy of its lock that the service makes while that is still this run's, and what is
    written otherwise than by this process's own requests is built in a folder that no other run knows.
    """

    journal: Journal | None = None

    def __init__(
        self,
        destination: BucketPath,
        linker: Linker,
        stood: Stood | None = None,
        *,
        beside: bool = False,
        stale: Path | None = None,
    ) -> None:
        """``stood``: what is there when the run begins, if that may be replaced; ``stale``: or a record beside it.
        ``beside``: build in a folder of this run's own, and let the service copy it to its place in the end.
        """
        self.destination = destination
        self._stood = stood
        self._linker = linker
        self._token = secrets.token_hex(8)
        self._beside = destination.with_name(f".{destination.name}{STAGING_MARK}{self._token[:8]}")
        self._replaces = filesystem.exists(destination)  # looked at anew once nobody else may write
        self._is_beside = beside or self._replaces
        who = {"run": self._token, "builds": str(self._built), "replaces": self._replaces}
        who["marked"] = self._replaces_marked = self._replaces and is_whole(destination)
        who |= msgspec.to_builtins(Owner.here())
        self._lock = Lock(destination, json.dumps(who).encode())
        self._open = ExitStack()
        self._is_whole = False
        self._is_mixed = False
        self._read_back: Stood = {}
        self._stale = stale
        self._looking: Future[bool] | None = None

    @property
    def new(self) -> Path:
        """What is, or becomes, the destination."""
        return self._beside / self.destination.name if self._is_beside else self.destination

    @property
    def _built(self) -> Path:
        """All that this run makes stands at or below it."""
        return self._beside if self._is_beside else self.destination

    def __enter__(self) -> Self:
        begin_anew()
        is_taken = False
        try:
            take_lock(self._lock, self.destination)
            self._keep_guard()
            is_taken = True
            filesystem.forget(self.destination)
            may_be = self._stood is not None and self._replaces
            if filesystem.exists(self.destination) and not may_be:
                raise already_there(self.destination)
        except BaseException as error:
            # a signal may come when the lock stands, and this run has not heard of it yet
            if is_taken or not isinstance(error, Exception):
                self._withdraw()
            self._open.close()
            raise
        return self

    def _keep_guard(self) -> None:
        """From now on nothing is replaced or deleted there that another run has made meanwhile."""
        self._guard = self._open.enter_context(guarded(self.destination, self._check))
        if self._stale is not None:
            self._guard.may_go([self._stale])

    def _check(self) -> None:
        if not self._lock.is_held():
            raise self._taken_over

    def _withdraw(self) -> None:
        """Where a run ends before it has begun: its lock goes, if it stands."""
        with uninterrupted():
            try:
                is_ours = self._lock.is_held()
            except OSError:  # nothing is known of it
                remaining.append(self._lock.place)
                return
            if is_ours:
                self._release()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with uninterrupted(), self._open:
            if self._is_whole and not self._is_beside:  # nothing goes but the lock, if it is ours
                self._release()
                return
            self._linker.wait()
            try:
                is_ours = self._lock.is_held()
            except OSError:  # nothing is known: what was built stays, and its lock
                if not self._is_mixed:
                    remaining.extend((self._built, self._lock.place))
                return
            if not is_ours:
                self._yield(error)
                return
            if self._is_mixed:  # nobody may read it, and the new one stands beside it
                return
            self._remove()
            if self._built in remaining:
                remaining.append(self._lock.place)
            else:
                self._release()
            raise_of_built(self._built, error)

    def _yield(self, error: BaseException | None) -> None:
        """Whoever took the lock builds there now, or has finished: only what no other run knows goes.

        Raises:
            WriteError: in the place of ``error``, which comes of that.
        """
        record = companion_of(self.destination)  # a single file's stands beside it
        with suppress(OSError, SurgeryError):
            if not self._is_beside and self._guard.has_made(record):
                filesystem.delete(record)
            if self._is_beside:
                self._remove_private()
        if not self._is_whole and isinstance(error, Exception):
            raise self._taken_over from error

    def _remove_private(self) -> None:
        filesystem.delete_below(self._beside)
        filesystem.delete(inventory_of(self._beside))

    @property
    def _taken_over(self) -> WriteError:
        return taken_over(self.destination, self._lock.place)

    def _remove(self) -> None:
        """Remove what was built."""
        # All that this process has asked for is waited for, until it is answered or given up. A request that was given
        # up, for no answer came, may still be carried out by the service, after all was listed.
        for _ in range(2):
            with suppress(OSError):
                delete_all(self._may_have_put())
                if self._is_beside:
                    filesystem.delete_below(self._beside)
            if not self._may_be_left():
                return
        remaining.append(self._built)

    def _may_have_put(self) -> list[Path]:
        """What stands at the destination, and goes where the run fails. Raises OSError."""
        if self._is_whole or (self._is_beside and self._replaces):
            return []
        return may_have_put(self.destination, self._guard)

    def _may_be_left(self) -> bool:
        """False only where it is known that nothing of what was built is."""
        try:
            return bool(self._may_have_put()) or (self._is_beside and may_stand(self._beside))
        except OSError:
            return True

    def _release(self) -> None:
        """The inventory goes after all that it speaks of, and before the lock that says what it is of."""
        try:
            if self._is_beside:
                filesystem.delete(inventory_of(self._beside))
            self._lock.release()
        except OSError:
            if may_stand(self._lock.place):
                remaining.append(self._lock.place)

    def begun(self, placed: Placed) -> None:
        """Everything stands in its place that is not computed: said only where there is a journal."""

    def is_built(self) -> None:
        """What stands now is read back: none of it may go, or come anew, before all of it is whole."""
        self._read_back = what_stands(self.new)

    def look_at_lock(self) -> None:
        """``commit`` comes next: see meanwhile that nobody has taken over."""
        self._looking = in_background(self._lock.is_held)

    def commit(self) -> None:
        """Write what says that the new checkpoint is whole, last, and innermost first.

        Raises:
            WriteError: what is replaced could not be replaced whole.
        """
        with uninterrupted():
            looking, self._looking = self._looking, None
            if not (self._lock.is_held() if looking is None else looking.result()):
                raise self._taken_over
            marks = commit_marks(self.new, self._linker)
            if self._is_beside:
                objects = [place for place in objects_at(self._beside) if place not in marks]
            else:
                check_put(self.new, self._guard)
            check_versions(self.new, self._read_back)
            for mark in marks:
                self._mark(mark)
            if self._is_beside:
                self._replace(objects, marks)
            self._is_whole = True
            Completed.now(self.destination)

    def _replace(self, objects: list[Path], marks: list[Path]) -> None:
        """Put the new checkpoint, which is whole beside the old one, in its place."""
        replacement = Replacement.of(self.destination, self._beside, objects, marks)
        if replacement.old and not self._replaces:
            raise already_there(self.destination)
        self._replaces = bool(replacement.old)  # its owner may have removed it meanwhile
        self._check_old()
        replacement.take_inventory(self._beside)  # where all is as that says, nothing has gone yet
        self._guard.may_go(replacement.old)
        was_mixed, self._is_mixed = self._is_mixed, bool(replacement.old)
        self._begin_to_replace()
        try:
            replacement.carry_out(self._guard, self._mark)
        except (OSError, SurgeryError) as error:
            is_half = left_half_replaced(replacement, self._guard, error)
            self._is_mixed = was_mixed or is_half is not False
            if self._is_mixed:
                ways = {"is_known": is_half is not None, "goes_on": self.journal is not None}
                raise not_replaced(self.destination, self._beside, error, **ways) from error
            if replacement.old and isinstance(error, OSError):
                raise untouched(self.destination, error) from error
            raise
        self._is_mixed = False

    def _check_old(self) -> None:
        """What is about to be replaced may be. Raises DestinationError: something has come meanwhile."""
        if self._stood is not None:
            check_replaced(self.destination, self._stood)

    def _begin_to_replace(self) -> None:
        """From now on something may stand at the destination that this run has put there."""

    def _mark(self, place: Path) -> None:
        try:
            self._lock.mark(place)
        except FileExistsError:
            raise self._taken_over from None

    @property
    def mark_content(self) -> bytes:
        """What its marks will hold."""
        return self._lock.content
