"""What killed runs have left in buckets: told by the locks that stand there, and removed where their writer is dead."""

from __future__ import annotations

import json
import re
import secrets
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import msgspec

from surgery_cli.errors import WriteError
from surgery_cli.inputs.buckets import path_at
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.bucket_guard import Guard
from surgery_cli.store.filesystem.bucket_locks import (
    Lock,
    beside,
    content_of,
    guarded,
    lock_of,
    said_in,
)
from surgery_cli.store.filesystem.names import STAGING_MARK
from surgery_cli.store.filesystem.processes import Owner, State
from surgery_cli.store.filesystem.protocol import COMMIT_MARK
from surgery_cli.store.write.commit_marks import companion_of, is_marked, is_record, is_whole
from surgery_cli.store.write.inventory import (
    first_foreign,
    first_lost,
    inventory_at,
    is_all_there,
    is_untouched,
)
from surgery_cli.store.write.journal import Journal, LinesInBucket
from surgery_cli.store.write.many_objects import delete_as_seen, objects_at
from surgery_cli.store.write.staging import remove


class BucketLeftover:
    """What a run to a destination has left, as far as its lock tells; see ``leftovers.Leftover``."""

    def __init__(self, destination: Path) -> None:
        self.destination = destination
        self._lock = lock_of(destination)
        self.content = content_of(self._lock)
        self.owner = said_in(self.content, Owner)
        said = said_in(self.content, _Said)
        self.replaces_nothing = said is not None and not said.replaces
        self.replaces_marked = said is not None and said.marked
        self._is_mixed = said is not None and said.mixed
        self.built = None if said is None else _built_of(destination, said.builds)
        self.folder = None if said is None else _journal_of(destination, said.journal)
        """Where its journal is, if it keeps one."""
        self.stays: Path | None = None
        """Something of another program, among what the run had put at its destination, which stays for that."""
        for place in filter(None, (self.built, self.folder)):
            filesystem.forget(place)

    @property
    def path(self) -> Path:
        """What goes: what was built, or the lock alone where that is whole, not known, or nothing was begun."""
        is_there = self._has_begun and self.built is not None and filesystem.exists(self.built)
        return self.built if self.built and is_there and not self._is_done else self._lock

    @property
    def state(self) -> State:
        """What is known of the run."""
        state = State.UNKNOWN if self.owner is None else self.owner.state
        if state is State.LIVING or not self.has_half_replaced:
            return state
        assert self.built is not None
        new = self.built / self.destination.name
        stands = (is_whole(new) or filesystem.is_file(new)) and first_lost(self.built) is None
        return State.WHOLE if stands else State.LOST

    @cached_property
    def journal(self) -> Journal | None:
        """What has been done in it, if a run may go on from there."""
        if self.built is None or self._is_done:
            return None
        return self._journal

    @cached_property
    def _journal(self) -> Journal | None:
        found = None if self.folder is None else Journal(LinesInBucket(self.folder))
        return found if found is not None and found.head is not None else None

    @property
    def _has_begun(self) -> bool:
        """False of a run that keeps a journal, and was killed before its first line: it builds after that alone."""
        return self.folder is None or self._journal is not None

    @property
    def bytes(self) -> int:
        files = filesystem.files_below(self.path)
        return sum(filesystem.size(file) for file in files)

    def remove(self) -> bool:
        """Remove it, and then the lock, which is made this process's before: nobody else builds there meanwhile.

        False if the lock has gone, which whoever removes it does last: nothing is left, then. Or where the run came to
        its end meanwhile: nothing but its lock was left of that.

        Raises:
            WriteError: it cannot be removed, or another run has taken the lock meanwhile.
        """
        said = said_in(self.content, dict[str, Any]) or {}
        own = {"removes": said.get("run", ""), **said, "run": secrets.token_hex(8)}
        own |= msgspec.to_builtins(Owner.here())
        lock, found = Lock(self.destination, json.dumps(own).encode()), self.path
        try:
            try:
                lock.take_over(self.content)
            except FileNotFoundError:
                return False
            filesystem.forget(self.destination)  # its mark may have come before this was the lock
            found_so = self.path == found
            held = partial(check_held, lock)
            with guarded(self.destination, held, seen_may_go=True) as guard:
                self._remove_built(guard)
            for place in beside(self.destination):
                filesystem.delete_below(place)
            lock.release()
        except FileExistsError:
            raise has_changed(self._lock) from None
        except OSError as error:
            raise cannot_be_removed(self.path, error) from error
        return found_so

    def _remove_built(self, guard: Guard) -> None:
        place = self.path
        record = companion_of(self.destination)
        if place == self.destination and not filesystem.is_folder(place):
            if is_record(record):
                filesystem.delete(record)
            elif filesystem.exists(record):
                self.stays = record
        if place != self.destination and self.replaces_nothing:
            self._remove_copies(guard)
        if place != self._lock:
            remove(place)

    def _remove_copies(self, guard: Guard) -> None:
        """What stands at the destination goes if all of it was copied there: Orbax asks nobody before it saves."""
        inventory = None if self.built is None else inventory_at(self.built)
        if inventory is None or self.built is None or is_whole(self.destination):
            return
        there = objects_at(self.destination)
        marks = [place for place in there if place.name == COMMIT_MARK]  # copies of the lock
        are_ours = all(filesystem.read_if_any(mark) == self.content for mark in marks)
        own = msgspec.structs.replace(inventory, stood={})  # in the place of nothing
        foreign = first_foreign(there, self.destination, self.built, own)
        if are_ours and foreign is None:
            delete_as_seen(there, guard)
            self.stays = next(iter(objects_at(self.destination)), None)
        elif there:
            self.stays = foreign or self.destination

    @property
    def _is_done(self) -> bool:
        """The run had done all but remove its lock."""
        if self.built == self.destination:
            return is_whole(self.destination)
        return self.is_marked or self._is_all_there

    @property
    def _is_all_there(self) -> bool:
        """A single file, which has no mark, has come to its place, and its record."""
        if self.built in (None, self.destination) or not filesystem.is_file(self.destination):
            return False
        assert self.built is not None
        inventory = inventory_at(self.built)
        return inventory is not None and is_all_there(self.destination, self.built, inventory)

    @property
    def is_marked(self) -> bool:
        """The run's own mark is there, which is a copy of its lock: looked up anew."""
        try:
            filesystem.forget(self.destination)
            return is_marked(self.destination, self.content)
        except FileNotFoundError:
            return False

    @property
    def has_half_replaced(self) -> bool:
        """It had begun to put what it built in the place of something, which by its marks is not whole any more.

        Where the folder is gone in which it built, nothing says that it had not.
        """
        if self.built in (None, self.destination) or self.replaces_nothing:
            return False
        assert self.built is not None
        if is_whole(self.destination) or self._is_all_there:
            return False
        if not filesystem.exists(self.built) and not filesystem.exists(self.destination):
            return False  # somebody has removed both
        if self._is_mixed:
            return True
        if (inventory := inventory_at(self.built)) is not None:
            return not is_untouched(self.destination, inventory)
        if not filesystem.exists(self.built):
            return self.replaces_marked
        is_there = filesystem.exists(self.destination)  # else its owner has removed it meanwhile
        return is_there and self.replaces_marked and is_whole(self.built / self.destination.name)


class _Said(msgspec.Struct):
    """What a lock says beside its owner: the address at which the run builds."""

    builds: str
    journal: str = ""
    replaces: bool = True
    """False where nothing stood at the destination when the run began."""
    marked: bool = False
    """True where something stood there that a mark said to be whole."""
    mixed: bool = False
    """True where another run, whose place it takes, had half replaced that."""


def cannot_be_removed(path: Path, error: OSError) -> WriteError:
    return WriteError(
        f"'{path}' cannot be removed",
        why=error.strerror or str(error),
        fix=getattr(error, "fix", "remove it as the user who made it"),
    )


def has_changed(lock: Path) -> WriteError:
    return WriteError(
        f"'{lock}' has changed",
        why="another run writes there by now, or has removed it",
        fix="run the command again",
    )


def check_held(lock: Lock) -> None:
    """Raises FileExistsError where another run has it by now."""
    if not lock.is_held():
        raise FileExistsError


def _built_of(destination: Path, said: str) -> Path | None:
    """What a lock says that the run builds, if that can be: what stands there goes with it."""
    beside = f"{destination.parent}/.{destination.name}{STAGING_MARK}"
    is_either = said == str(destination) or (
        said.startswith(beside) and "/" not in said[len(beside) :]
    )
    return path_at(said) if is_either else None


def _journal_of(destination: Path, said: str) -> Path | None:
    """Where a lock says that the journal is, if that can be: what stands there goes with it."""
    beside = f"{destination.parent}/.{destination.name}{STAGING_MARK}"
    is_ours = said.startswith(beside) and re.fullmatch("[0-9a-f]{8}-journal", said[len(beside) :])
    return path_at(said) if is_ours else None
