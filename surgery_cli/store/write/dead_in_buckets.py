"""Which runs have left something in buckets, told by the locks that stand there; what the dead ones have left goes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.bucket_locks import lock_of
from surgery_cli.store.filesystem.names import STAGING_MARK, destination_of
from surgery_cli.store.filesystem.processes import State
from surgery_cli.store.write.bucket_leftovers import BucketLeftover
from surgery_cli.store.write.leftovers import Left, Leftover, leftovers_of


def bucket_leftovers(path: BucketPath) -> list[BucketLeftover]:
    """Of runs to what ``path`` names: a destination, what stands in a folder, or what a run has made itself."""
    named = destination_of(path)
    filesystem.forget(lock_of(named))
    filesystem.forget(path)
    found = [named] if named.key and filesystem.exists(lock_of(named)) else []
    suffix = f"{STAGING_MARK}lock"
    found += [
        path / entry.name[1 : -len(suffix)]
        for entry in filesystem.entries_if_any(path)
        if entry.is_file and entry.name.startswith(".") and entry.name.endswith(suffix)
    ]
    return [left for destination in found for left in _told_by_lock(destination)]


def _told_by_lock(destination: Path) -> list[BucketLeftover]:
    """What a lock that stood there tells, or another one in its place; nothing once its run has ended."""
    try:
        return [BucketLeftover(destination)]
    except FileNotFoundError:
        return []


def leftovers_at(destination: Path, *, anew: bool = False) -> Sequence[Leftover | BucketLeftover]:
    """What other runs to a destination have beside it, as far as it is known what stands there.

    ``anew``: as it is now, whatever was seen there before.
    """
    if not isinstance(destination, BucketPath):
        return leftovers_of(destination)
    lock = lock_of(destination)
    if anew:
        filesystem.forget(lock)
        filesystem.forget(destination)
        is_locked = filesystem.exists(lock)
    else:
        is_locked = lock.name in {e.name for e in filesystem.entries_if_any(destination.parent)}
    return _told_by_lock(destination) if is_locked else []


def dead_at(destination: Path, *, stale: bool = False) -> list[Left]:
    """What runs to ``destination`` have left that are known to be dead, and nobody may go on from.

    ``stale``: in a bucket, those of which it cannot be told are dead, too.
    """
    maybe = (
        (State.ELSEWHERE, State.UNKNOWN) if stale and isinstance(destination, BucketPath) else ()
    )
    over = (State.DEAD, *maybe)
    return [
        left for left in leftovers_at(destination) if left.state in over and left.journal is None
    ]


def remove_dead(destination: Path, *, stale: bool = False) -> list[Path]:
    """Remove what is ``dead_at`` a destination; returns what was removed."""
    dead = [(left.path, left) for left in dead_at(destination, stale=stale)]
    return [path for path, left in dead if left.remove()]
