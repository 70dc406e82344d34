"""What a `--force` that was killed has half replaced in a bucket, where objects go to their places one by one."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from surgery_cli.errors import Problem
from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import STAGING_MARK, destination_of
from surgery_cli.store.filesystem.processes import State
from surgery_cli.store.write.bucket_leftovers import Stray, leftovers_at
from surgery_cli.store.write.leftovers import Left
from surgery_cli.store.write.resumable_staging import goes_on


def half_replaced(destination: Path) -> Problem | None:
    """Why nothing may be taken from what stands there, and where the new one is; None where it is not so.

    Of two saves of one structure no leaf tells to which it belongs: each is whole, and together they are neither.
    """
    if not isinstance(destination, BucketPath):
        return None
    lefts = leftovers_at(destination)
    for left in lefts or _strays(destination):
        if left.state is State.WHOLE:
            new, journal = left.path / destination.name, left.journal
            ways = [] if journal is None or journal.head is None else [goes_on(journal.head)]
            ways.append(finished_by(destination, left) if lefts else _forced(left.path))
            return Problem(
                f"'{destination}' is half replaced: what stands there may be of two checkpoints",
                why=f"a run with `--force` was killed while it put the new one there; that stands whole in '{new}'",
                fix="; or ".join([*ways, taken_by(left.path)]),
                path=str(destination),
            )
    return None


def finished_by(destination: Path, left: Left | None = None) -> str:
    """What puts the new checkpoint in its place; ``left``: by a run which may not be over."""
    is_over = left is None or (left.owner is not None and left.owner.state is State.DEAD)
    command = f"`surgery clean {quote(str(destination))}{'' if is_over else ' --stale'}`"
    return f"{command} puts the new one in its place{'' if is_over else ', if that run is over'}"


def _forced(left: Path) -> str:
    """What to do where somebody has removed the lock, and nobody can tell any more who has made what stands there."""
    destination = quote(str(destination_of(left)))
    return (
        "the command with `--force` that was typed then replaces what stands there;"
        f" after it, `surgery clean {destination} --stale` removes '{left}'"
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
