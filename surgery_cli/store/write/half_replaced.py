"""What a `--force` that was killed has half replaced in a bucket, where objects go to their places one by one."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from surgery_cli.errors import DestinationError, Problem, SurgeryError, WriteError
from surgery_cli.inputs.buckets import BucketPath, ServiceRefusal, removal
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.bucket_guard import Guard
from surgery_cli.store.filesystem.bucket_locks import LEVELS
from surgery_cli.store.filesystem.listing import removal_of
from surgery_cli.store.filesystem.names import STAGING_MARK, destination_of, step_name
from surgery_cli.store.filesystem.processes import State
from surgery_cli.store.locate.being_written import is_marked
from surgery_cli.store.write.bucket_leftovers import BucketLeftover
from surgery_cli.store.write.dead_in_buckets import leftovers_at
from surgery_cli.store.write.inventory import first_lost, inventory_at, is_untouched
from surgery_cli.store.write.leftovers import Left, is_over
from surgery_cli.store.write.replacement import Replacement
from surgery_cli.store.write.resumable_staging import goes_on
from surgery_cli.store.write.strays import Stray
from surgery_cli.words.advice import NOTHING_LEFT, worded


def half_replaced(destination: Path) -> Problem | None:
    """Why nothing may be taken from what stands there, and where the new one is; None where it is not so.

    Of two saves of one structure no leaf tells to which it belongs: each is whole, and together they are neither.
    """
    if not isinstance(destination, BucketPath):
        return None
    lefts = leftovers_at(destination)
    for left in lefts:
        if isinstance(left, BucketLeftover) and left.state in (State.WHOLE, State.LOST):
            return _of_run(left)
    for stray in () if lefts else _strays(destination):
        if stray.state is State.WHOLE:
            return _without_lock(stray.path)
    return None


def mixture_around(place: Path) -> Problem | None:
    """The same of a place, or of what it lies in: a step in a root, an item in a step.

    A step's own mark says that all in it is whole; that of an item says it of the item as it was.
    """
    for folder in [place, *place.parents][:LEVELS]:
        if not isinstance(folder, BucketPath) or not folder.key:
            return None
        if (mixture := half_replaced(folder)) is not None:
            return mixture
        if step_name(folder.name) is not None and is_marked(folder):
            return None
    return None


def _of_run(left: BucketLeftover) -> Problem:
    destination, journal, built = left.destination, left.journal, left.built
    assert built is not None
    new, lost = built / destination.name, first_lost(built)
    ways = [] if journal is None or journal.head is None else [goes_on(left)]
    if lost is None:
        state = f"that stands whole in '{new}'"
        ways += [finished_by(destination, left), taken_by(built)]
    else:
        state = f"of that, '{lost}' is gone since, or another"
        stale = "" if is_over(left) else " --stale"
        both = f"`{removal_of(destination)}` and `{removal(built)}`"
        ways.append(
            f"where something whole is left of it, {taken_by(built)}; {both}"
            f" remove both, and then `surgery clean {quote(str(destination))}{stale}` the rest"
        )
    puts = "was killed while it put" if is_over(left) else "that may still be at work puts"
    return Problem(
        f"'{destination}' is half replaced: what stands there may be of two checkpoints",
        why=f"a run with `--force` {puts} the new one there; {state}",
        fix="; or ".join(ways),
        path=str(destination),
    )


def _without_lock(built: Path) -> Problem:
    """Where somebody has removed the lock, and nobody can tell any more who has made what stands there."""
    destination = destination_of(built)
    is_there = filesystem.exists(destination)
    both = f"`{removal_of(destination)}` and " * is_there
    return Problem(
        f"'{destination}' is half replaced: what stands there may be of two checkpoints"
        if is_there
        else f"nothing stands at '{destination}'",
        why=f"a run that was to put a checkpoint there has left it whole in '{built}', and its lock is gone",
        fix=f"{taken_by(built)}; then {both}`{removal(built)}`",
        path=str(destination),
    )


def not_replaced(
    destination: Path, built: Path, error: OSError | SurgeryError, *, is_known: bool, goes_on: bool
) -> WriteError:
    """The error of a run that could not go on, without what its cause says of what would be left before that.

    ``is_known``: of the old one, something has gone. ``goes_on``: the same command is what mends it, as is said of what
    is kept.
    """
    if isinstance(error, OSError):
        cause = error.strerror or str(error)
    else:
        cause = "; ".join(filter(None, (error.problems[0].what, error.problems[0].why)))
    where_whole = "" if is_known else ", or removes it where what stands there is whole"
    mend = f"{finished_by(destination)}{where_whole}; or {taken_by(built)}"
    if isinstance(error, DestinationError):
        mend = f"{mend}; as long as something else stands there, `clean` leaves all as it is, and says how to go on"
    return WriteError(
        f"'{destination}' could not be replaced whole",
        why=f"{cause}; the new one stands whole in '{built / destination.name}'",
        fix="" if goes_on else mend,
    )


def untouched(destination: Path, error: OSError) -> WriteError:
    """The error of a run that was refused before anything of the old one went, or of the new one came."""
    return WriteError(
        f"'{destination}' could not be replaced, and stands as it was",
        why=f"{error.strerror or error}: '{error.filename}'",
        fix=worded("{}; mend the cause and run the command again", NOTHING_LEFT),
    )


def left_half_replaced(
    replacement: Replacement, guard: Guard, error: OSError | SurgeryError
) -> bool | None:
    """What `clean` will take a destination for where ``error`` cut its replacement short; None: nobody can tell.

    What was refused was asked for, and has not come: the inventory tells of an old one that all of it stands. What
    got no answer may come later.
    """
    if not replacement.old or (is_begun := replacement.is_begun(guard)) is False:
        return False
    destination = replacement.destination
    try:
        filesystem.forget(destination)
        left = BucketLeftover(destination)
        if left.has_half_replaced:
            return True
        inventory = None if left.built is None else inventory_at(left.built)
        stands = inventory is not None and is_untouched(destination, inventory)
    except OSError:
        return None
    is_refused = isinstance(error, ServiceRefusal) and error.is_answered
    return False if is_begun and stands and is_refused else None


def finished_by(destination: Path, left: Left | None = None) -> str:
    """What puts the new checkpoint in its place; ``left``: by a run which may not be over."""
    is_safe = left is None or is_over(left)
    command = f"`surgery clean {quote(str(destination))}{'' if is_safe else ' --stale'}`"
    return f"{command} puts the new one in its place{'' if is_safe else ', if that run is over'}"


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
