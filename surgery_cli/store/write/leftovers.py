"""What killed runs have left: staging places, found by their names, and removed where their writer is dead."""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path
from typing import Protocol

import msgspec

from surgery_cli.errors import WriteError
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.durability import may_write_into
from surgery_cli.store.filesystem.links import bytes_held_alone
from surgery_cli.store.filesystem.listing import unreadable
from surgery_cli.store.filesystem.names import STAGING_MARK
from surgery_cli.store.filesystem.owners import is_staging, name_before, owner_of, take_over
from surgery_cli.store.filesystem.processes import Owner, State
from surgery_cli.store.write.commit_marks import companion_of
from surgery_cli.store.write.journal import Journal, journal_in
from surgery_cli.store.write.set_aside import remove_replaced
from surgery_cli.store.write.staging import remove


class Left(Protocol):
    """What a run has left, or builds, on a disk or in a bucket."""

    @property
    def path(self) -> Path: ...
    @property
    def owner(self) -> Owner | None: ...
    @property
    def state(self) -> State: ...
    @property
    def bytes(self) -> int: ...
    @property
    def journal(self) -> Journal | None:
        """What has been done in it, if a run may go on from there."""

    def remove(self) -> bool:
        """Remove it; False if it is no more what it was found as.

        Raises:
            WriteError: it cannot be removed.
        """


def is_over(left: Left) -> bool:
    """True if its writer is known to be dead: nobody wakes up and goes on with it, as one on another machine may."""
    return left.owner is not None and left.owner.state is State.DEAD


class Leftover(msgspec.Struct, frozen=True):
    """A staging directory, or the draft of a record, and what is known of the run that made it."""

    path: Path
    owner: Owner | None

    @property
    def state(self) -> State:
        return State.UNKNOWN if self.owner is None else self.owner.state

    @property
    def bytes(self) -> int:
        """Bytes of the files in it that have no other name: what its removal gives back."""
        return bytes_held_alone(self.path)

    @property
    def journal(self) -> Journal | None:
        """What has been done in it, if a run may go on from there: the result has not got its name."""
        found = journal_in(self.path)
        if found is None or found.whole is None:
            return found
        new = self.path / self.path.name[1 : self.path.name.rindex(STAGING_MARK)]
        # what `--force` replaced lies in its place then
        is_there = filesystem.exists(new) and filesystem.status(new).st_ino == found.whole.inode
        return found if is_there else None

    def remove(self) -> bool:
        """Remove it; False if it is gone: removed by another, or a run has just gone on from there.

        Raises:
            WriteError: something in it cannot be removed.
        """
        try:
            place = self.path if self.journal is None else take_over(self.path)
            remove_replaced(place)
            remove(place)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise WriteError(
                f"'{self.path}' cannot be removed",
                why=f"{error.strerror}: '{error.filename}'",
                fix="remove that, or give it another name, and run the command again"
                if isinstance(error, FileExistsError)
                else "remove it as the user who made it",
            ) from error
        return True


def leftovers_of(destination: Path) -> list[Leftover]:
    """What runs to ``destination`` have left, beside it."""
    return _found(
        filesystem.absolute(destination).parent,
        f".{filesystem.absolute(destination).name}{STAGING_MARK}",
    )


def drafts_of(place: Path) -> list[Leftover]:
    """Drafts of the record that stands, or is to stand, beside a file or bare directory; see ``draft_of``."""
    record = companion_of(filesystem.absolute(place))
    found = _found(record.parent, f".{record.name}{STAGING_MARK}")
    if may_write_into(record.parent.parent):  # else none was begun there
        beside = _found(record.parent.parent, _draft_begin(record.parent, record))
        found += [left for left in beside if filesystem.is_file(left.path)]
    return found


def draft_of(record: Path, beside: Path) -> Path:
    """Where a record is written before it gets its name: ``beside`` it or its folder, with its owner in its name.

    Who looks for what was left beside that finds all drafts; who looks for those of one record finds no other's.
    """
    return name_before(
        beside.with_name(f"{_draft_begin(beside, record)}{secrets.token_hex(2)}"), Owner.here()
    )


def _draft_begin(beside: Path, record: Path) -> str:
    which = hashlib.sha256(os.fsencode(record.name)).hexdigest()[:4]
    return f".{beside.name}{STAGING_MARK}{which}"


def leftovers_in(directory: Path) -> list[Leftover]:
    """What runs to anything in a directory have left in it."""
    return _found(directory, ".")


def _found(directory: Path, begin: str) -> list[Leftover]:
    try:
        entries = filesystem.entries(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:  # nobody may say that nothing is there
        raise unreadable(directory, error) from None
    return [
        Leftover(directory / entry.name, owner_of(directory / entry.name))
        for entry in entries
        if entry.name.startswith(begin)
        and is_staging(entry.name)
        and (entry.is_folder or entry.is_file)
        and not entry.is_link
    ]
