"""Finish what a killed `--force` was about to do in a bucket: put the new checkpoint, which is whole, in its place."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

import msgspec

from surgery_cli.errors import DestinationError, WriteError
from surgery_cli.inputs.buckets import removal
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.bucket_locks import Lock, beside, guarded, lock_of
from surgery_cli.store.filesystem.listing import COMMIT_MARK, STAGING_MARK
from surgery_cli.store.filesystem.processes import Owner, State
from surgery_cli.store.write.bucket_leftovers import BucketLeftover, check_held, has_changed
from surgery_cli.store.write.half_replaced import taken_by
from surgery_cli.store.write.many_objects import copy_below, objects_at
from surgery_cli.store.write.replacement import Replacement


def finish(left: BucketLeftover) -> None:
    """Put what was built in its place, and remove all else that was left; cut short, it is done again from the start.

    A run that is only said to be over may wake up, and remove what it has built: that is copied first.

    Raises:
        DestinationError: something else has been written to the destination since.
        WriteError: the service refuses something, or another run has taken the lock meanwhile.
    """
    destination, old = left.destination, left.built
    assert old is not None
    _check_destination(left, old)
    token = secrets.token_hex(8)
    is_over = left.owner is not None and left.owner.state is State.DEAD
    built = old if is_over else old.with_name(f".{destination.name}{STAGING_MARK}{token[:8]}")
    owner = msgspec.to_builtins(Owner.here())
    lock = Lock(destination, json.dumps({"run": token, "builds": str(built), **owner}).encode())
    try:
        if not is_over:
            copy_below(old, built)
        lock.take_over(left.content)
        with guarded(destination, lambda: check_held(lock)) as may_go:
            replacement = Replacement.of(destination, built, _marks_in(built))
            may_go(replacement.old)
            replacement.carry_out(lock.mark)
        for place in beside(destination):
            filesystem.delete_below(place)
        lock.release()
    except FileExistsError:
        raise has_changed(lock.place) from None
    except OSError as error:
        raise WriteError(
            f"'{built / destination.name}' could not be put in its place",
            why=error.strerror or str(error),
            fix=getattr(error, "fix", "") or "run the command again",
        ) from error


def _marks_in(built: Path) -> list[Path]:
    """Innermost first."""
    marks = [place for place in objects_at(built) if place.name == COMMIT_MARK]
    return sorted(marks, key=lambda mark: (-len(mark.parts), str(mark)))


def _check_destination(left: BucketLeftover, built: Path) -> None:
    """See that what stands at the destination was there before the run, or was put there by it.

    Orbax asks nobody before it writes there, and on ``s3://`` it leaves no mark that tells.

    Raises:
        DestinationError: something has come since the run began that is not of what it has built.
    """
    destination = left.destination
    moved = {destination.parent / new.relative_to(built): new for new in objects_at(built)}
    began = filesystem.status(lock_of(destination)).st_mtime_ns
    others = [
        place
        for place in objects_at(destination)
        if place.name != COMMIT_MARK
        and filesystem.status(place).st_mtime_ns > began
        and (place not in moved or _content(place) != _content(moved[place]))
    ]
    if others:
        new = built / destination.name
        raise DestinationError(
            f"'{destination}' was written to by something else since a run half replaced it",
            why=f"'{others[0]}' is not what that run has put there; its own stands whole in '{new}'",
            fix=f"{taken_by(built)}; where what stands at '{destination}' is to be kept,"
            f" `{removal(built)}`, and last `{removal(lock_of(destination))}`",
        )


def _content(place: Path) -> tuple[int, str]:
    """What tells what an object holds, as far as the service says."""
    status = filesystem.status(place)
    return status.st_size, getattr(status, "digest", "")
