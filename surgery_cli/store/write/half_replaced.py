"""What a `--force` that was killed has half replaced in a bucket, where objects go to their places one by one."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from surgery_cli.errors import Problem
from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.bucket_locks import lock_of
from surgery_cli.store.filesystem.listing import STAGING_MARK, destination_of
from surgery_cli.store.filesystem.processes import State
from surgery_cli.store.write.bucket_leftovers import Stray, leftovers_at
from surgery_cli.store.write.resumable_staging import goes_on


def half_replaced(destination: Path) -> Problem | None:
    """Why nothing may be taken from what stands there, and where the new one is; None where it is not so.

    Of two saves of one structure no leaf tells to which it belongs: each is whole, and together they are neither.
    """
    if not isinstance(destination, BucketPath):
        return None
    for left in leftovers_at(destination) or _strays(destination):
        if left.state is State.WHOLE:
            new, journal = left.path / destination.name, left.journal
            ways = [] if journal is None or journal.head is None else [goes_on(journal.head)]
            return Problem(
                f"'{destination}' is half replaced: what stands there is of two checkpoints",
                why=f"a run with `--force` was killed while it put the new one there; that stands whole in '{new}'",
                fix=f"{'; else '.join([*ways, taken_by(left.path)])}; {by_hand(left.path)}",
                path=str(destination),
            )
    return None


def by_hand(left: Path) -> str:
    """What is to be removed by hand once the new checkpoint was taken out of such a folder: the mixture first.

    While the lock stands, nobody takes what is at the destination for a checkpoint.
    """
    destination = destination_of(left)
    return (
        f"then remove '{destination}', which is of two checkpoints, '{left}', and last '{lock_of(destination)}':"
        " no command does"
    )


def taken_by(left: Path) -> str:
    """What takes the new checkpoint out of the folder that a killed run has left, in which it stands whole."""
    new = left / destination_of(left).name
    return f"`surgery rescue {quote(str(new))} NEW` takes that to a place of its own"


def _strays(destination: Path) -> list[Stray]:
    """What no lock stands for; as it was listed: whoever reads there notices what changes meanwhile."""
    begin = f".{destination.name}{STAGING_MARK}"
    entries = filesystem.entries_if_any(destination.parent)
    return [
        Stray(destination.parent / entry.name)
        for entry in entries
        if entry.name.startswith(begin) and not entry.is_file
    ]
