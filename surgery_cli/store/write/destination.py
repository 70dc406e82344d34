"""Whether a destination may be written, asked before any work."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import Final

from surgery_cli.errors import DestinationError, WriteError
from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.bucket_locks import Lock, claim_of, lock_of
from surgery_cli.store.filesystem.durability import may_write_into
from surgery_cli.store.filesystem.listing import removal_of
from surgery_cli.store.filesystem.names import (
    destination_of,
    is_leftover,
    is_record,
    unfinished_name,
)
from surgery_cli.store.filesystem.owners import OWNER_FILE
from surgery_cli.store.filesystem.processes import State
from surgery_cli.store.write.commit_marks import is_marked

_CUT_AT: Final = "?#"
"""Where Orbax cuts an address, which it writes as a URL: what it saves there comes to lie elsewhere."""


def check_address(destination: Path) -> None:
    """Refuse a place in a bucket from which Orbax would read another one.

    Raises:
        DestinationError: so.
    """
    # of other buckets Orbax reads nothing
    if isinstance(destination, BucketPath) and destination.scheme == "gs":
        cut = next((one for one in destination.key if one in _CUT_AT), None)
        if cut is not None:
            raise DestinationError(
                f"Orbax cannot restore from '{destination}'",
                why=f"it ends an address in a bucket at a '{cut}', and would look elsewhere",
                fix=f"name a place without '{cut}'",
            )


OUTSIDE: Final = "name a place outside of it"


def check_destination(
    destination: Path,
    source: Path,
    other_place: str = OUTSIDE,
    beside: str = "name another place",
) -> None:
    """Refuse a destination that must not be written, before any work, whatever stands there.

    ``source`` is everything that must not change: the root that holds the step which is read. ``other_place``: what
    to do instead of writing into that; ``beside``: instead of naming it itself.

    Raises:
        DestinationError: it lies in the source, is the source, or holds it, or cannot be made.
    """
    real, origin = real_path(destination), filesystem.real(source)
    if unfinished_name(real.name) or is_leftover(real.name) or real.name == OWNER_FILE:
        raise DestinationError(
            f"'{destination}' has the name of an unfinished save",
            why="readers, this program among them, refuse such names",
            fix="name another place",
        )
    if is_record(real.name):
        raise DestinationError(
            f"'{destination}' has the name of a record",
            why="the record of a checkpoint, or of one beside, stands under such a name",
            fix="name another place",
        )
    if real == origin:
        raise DestinationError(
            f"'{destination}' is the source itself",
            why="the source is never written to",
            fix=beside,
        )
    if origin in real.parents:
        raise DestinationError(
            f"'{destination}' lies inside the source '{origin}'",
            why="the source is never written to",
            fix=other_place,
        )
    if real in origin.parents:
        raise DestinationError(
            f"'{destination}' holds the source '{origin}'",
            why="replacing it would remove the source",
            fix="name another place",
        )
    if isinstance(real, BucketPath):  # folders are names, and only writing tells who may write
        return
    parent = real.parent
    while not filesystem.exists(parent):
        parent = parent.parent
    if not filesystem.is_folder(parent):
        raise DestinationError(
            f"'{destination}' cannot be made", why=f"'{parent}' is not a directory"
        )
    if not may_write_into(parent):
        raise DestinationError(
            f"'{destination}' cannot be made",
            why=f"'{parent}' is not writable",
            fix="name a directory that you may write to",
        )


def already_there(destination: Path, *, goes_on: bool = False) -> DestinationError:
    """``goes_on``: of a run from which this one goes on, something is kept beside it."""
    if goes_on:
        return DestinationError(
            f"the destination '{destination}' exists, and is not of the run that this one goes on from",
            why="that was killed before it put anything there; what stands there was there, or was saved since",
            fix="the same command goes on once nothing stands there; with `--force` it replaces that in the end",
        )
    return DestinationError(
        f"the destination '{destination}' exists",
        why="nothing is overwritten unless that is asked for",
        fix="name another, or add `--force` to replace it once the new one is complete",
    )


def being_written(destination: Path, *, may_force: bool = True) -> DestinationError | None:
    """The error for a destination in a bucket that another run has locked, as far as it was seen what stands there.

    ``may_force``: whether the command has a ``--force`` that would replace that.
    """
    if not isinstance(destination, BucketPath):
        return None
    lock = lock_of(destination)
    if lock.name not in [entry.name for entry in filesystem.entries_if_any(lock.parent)]:
        return None
    filesystem.forget(lock)
    with suppress(FileNotFoundError):
        return claimed(lock, may_force=may_force)
    return None


def claimed(lock: Path, *, may_force: bool = True) -> DestinationError:
    """The error for a destination in a bucket that another run has, or had when it was killed.

    Raises:
        FileNotFoundError: the lock has just gone.
    """
    claim = claim_of(lock)
    destination = destination_of(lock)
    if claim.state is State.DEAD and is_marked(destination, filesystem.read(lock)):
        another = "name another, or add `--force`" if may_force else "name another"
        return DestinationError(
            f"the destination '{destination}' exists",
            why=f"it is complete: the run that made it ended before it had removed its lock '{lock}'",
            fix=f"{another}; `surgery clean {quote(str(destination))}` removes the lock",
        )
    fix = f"{claim.fix}; or name another destination"
    return DestinationError(claim.what, why=claim.why, fix=fix)


def not_made(lock: Path, error: OSError) -> WriteError:
    """The error for a lock that the service does not let be made."""
    why = error.strerror or str(error)
    return WriteError(f"'{lock}' cannot be made", why=why, fix=getattr(error, "fix", ""))


def real_path(path: Path) -> Path:
    """The path with its parents' symbolic links followed, its own not."""
    absolute = filesystem.absolute(path)
    return filesystem.real(absolute.parent) / absolute.name


def take_lock(lock: Lock, destination: Path) -> None:
    """Keep other runs to a destination in a bucket away.

    Raises:
        DestinationError: another run is there.
    """
    try:
        lock.take()
    except FileExistsError:
        with suppress(FileNotFoundError):
            raise claimed(lock.place) from None
        raise DestinationError(
            f"another run was writing to '{destination}'",
            why=f"'{lock.place}' has just gone",
            fix="look at the destination, and run the command again",
        ) from None
    except OSError as error:
        raise not_made(lock.place, error) from error


def taken_over(destination: Path, lock: Path) -> WriteError:
    """The error for a run in a bucket whose ``lock`` is another one's by now, or gone."""
    filesystem.forget(lock)
    is_gone = False
    with suppress(OSError):
        is_gone = not filesystem.exists(lock)
    shown = f"`surgery inspect {quote(str(destination))}` shows it"
    return WriteError(
        f"'{destination}' was taken over by another run, or cleaned, while this one was under way",
        why=f"'{lock}' is {'gone' if is_gone else 'not what this run has made, any more'}",
        fix=f"nothing says any more whose it is that stands at the destination, and some of it may be of this run:"
        f" {shown}, `{removal_of(destination)}` removes it"
        if is_gone
        else f"what stands at the destination is not of this run, which keeps nothing: {shown}",
    )
