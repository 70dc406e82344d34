"""Finish what a killed `--force` was about to do in a bucket: put the new checkpoint, which is whole, in its place."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from shlex import quote

import msgspec

from surgery_cli.errors import DestinationError, WriteError
from surgery_cli.inputs.buckets import removal
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.bucket_locks import Lock, beside, guarded, lock_of
from surgery_cli.store.filesystem.names import STAGING_MARK
from surgery_cli.store.filesystem.processes import Owner
from surgery_cli.store.write.aftermath import begin_anew, kept
from surgery_cli.store.write.bucket_leftovers import BucketLeftover, check_held, has_changed
from surgery_cli.store.write.commit_marks import innermost_first, without_marks
from surgery_cli.store.write.half_replaced import taken_by
from surgery_cli.store.write.inventory import (
    copy_with_inventory,
    first_foreign,
    first_lost,
    inventory_at,
    inventory_of,
    objects_and_record,
)
from surgery_cli.store.write.leftovers import is_over
from surgery_cli.store.write.many_objects import objects_at
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
    check_can_finish(left)
    token = secrets.token_hex(8)
    built = old if is_over(left) else old.with_name(f".{destination.name}{STAGING_MARK}{token[:8]}")
    owner = msgspec.to_builtins(Owner.here())
    said = {
        "run": token,
        "builds": str(built),
        "marked": left.replaces_marked,
        "mixed": True,
        **owner,
    }
    lock = Lock(destination, json.dumps(said).encode())
    begin_anew()
    command = f"`surgery clean {quote(str(destination))}`"
    after = f"'{destination}' is half replaced: {command} goes on with that"
    is_ours = False
    try:
        if built != old:  # it may wake up
            copy_with_inventory(old, built)
        _take_over(lock, left)
        is_ours = True
        with guarded(destination, lambda: check_held(lock)) as guard:
            objects = objects_at(built)
            marks = innermost_first(objects)
            replacement = Replacement.of(destination, built, without_marks(objects), marks)
            check_can_finish(left, built)  # what came while the lock was another's as well
            guard.may_go(replacement.old)
            replacement.carry_out(guard, lock.mark)
        after = f"'{destination}' is whole: {command} removes what is left beside it"
        for place in beside(destination):
            filesystem.delete_below(place)
        lock.release()
    except FileExistsError:
        if not is_ours and built != old:
            with suppress(OSError):
                filesystem.delete_below(built)
                filesystem.delete_below(inventory_of(built).parent)
        raise has_changed(lock.place) from None
    except OSError as error:
        raise WriteError(
            f"what was left of '{destination}' could not be finished",
            why=error.strerror or str(error),
            fix="; ".join(filter(None, (getattr(error, "fix", ""), after))),
        ) from error
    except BaseException:  # a signal, say
        kept.append(after)
        raise


def _take_over(lock: Lock, left: BucketLeftover) -> None:
    """Raises FileExistsError where it is another run's by now, or where that has ended."""
    try:
        lock.take_over(left.content)
    except FileNotFoundError as error:
        raise FileExistsError(*error.args) from None


def check_can_finish(
    left: BucketLeftover, built: Path | None = None, there: Sequence[Path] | None = None
) -> None:
    """See that what stands at the destination stood there before anything was put there, or was put there by the run.

    Orbax asks nobody before it writes there, and on ``s3://`` it leaves no mark that tells. ``built``: where by now
    stands what it has built. ``there``: what stands at the destination, where that was listed.

    Raises:
        DestinationError: something has come since that is not of what it has built.
    """
    destination, built, lock = left.destination, built or left.built, lock_of(left.destination)
    assert built is not None
    if (inventory := inventory_at(built)) is not None:
        there = objects_and_record(destination, inventory) if there is None else there
        if (place := first_foreign(there, destination, built, inventory)) is None:
            return
        said = "was"
        why = f"'{place}' is not of that run, nor of what it was to replace"
    elif left.has_half_replaced:
        said = "may have been"
        why = f"'{inventory_of(built)}' is gone, which told what stood there before"
    else:
        return
    raise DestinationError(
        f"'{destination}' {said} written to by something else since a run put something there",
        why=why,
        fix=f"{_saved(built, destination)}; if a whole checkpoint was saved to '{destination}' since (else it is of"
        f" two, and nothing tells so any more): `{removal(built)}`, `{removal(inventory_of(built).parent)}`,"
        f" and last `{removal(lock, is_object=True)}`",
    )


def _saved(built: Path, destination: Path) -> str:
    """What takes the run's own checkpoint to another place, as far as it stands."""
    if (lost := first_lost(built)) is not None:
        return f"of its own, '{lost}' is gone, or another"
    return f"its own stands whole in '{built / destination.name}': {taken_by(built)}"
