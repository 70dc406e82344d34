"""What runs of ours are writing: who each is, and the error for whoever reads it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote

from surgery_cli.errors import BeingWrittenError, CheckpointError, LeftBehindError, ServiceFails
from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.bucket_locks import claim_of, lock_around, lock_of
from surgery_cli.store.filesystem.names import STAGING_MARK, destination_of, step_name
from surgery_cli.store.filesystem.owners import is_staging, owner_of
from surgery_cli.store.filesystem.processes import Claim, State, claim_by
from surgery_cli.store.filesystem.protocol import COMMIT_MARK


def claim_around(path: Path) -> Claim | None:
    """What is said of a run of ours that may be writing what stands there, or what that lies in; None without any.

    Whoever makes something of what stands there asks: what is not written yet would be taken for lost.

    Raises:
        BeingWrittenError: the run is alive.
    """
    built = next((part for part in (path, *path.parents) if is_built_in(part)), None)
    claim = None
    if built is not None:
        claim = claim_in(built)
    elif (lock := lock_on(path, path.parent)) is not None:
        with suppress(FileNotFoundError):
            claim = claim_of(lock)
    if claim is not None and claim.state is State.LIVING:
        raise claimed(claim)
    return claim


def is_marked(*folders: Path) -> bool:
    """True if one of them has Orbax's mark that it is whole."""
    return any(filesystem.is_file(folder / COMMIT_MARK) for folder in folders)


def lock_on(path: Path, *around: Path) -> Path | None:
    """The lock of a run of ours that has what stands there; None where a mark says that it is whole.

    A mark of what it lies ``around`` says so of what stood there by then, and not of what a run has put in since. The
    mark of an item says nothing of its step, which may be half replaced: that has another.
    """
    if filesystem.renames(path):
        return None
    if is_marked(path):
        is_of_step = not around or step_name(path.name) is not None or is_marked(*around)
        return None if is_of_step else lock_around(path.parent)
    return lock_around(path, levels=1) if is_marked(*around) else lock_around(path)


def locked_in(folder: Path) -> Iterator[Path]:
    """What runs of ours have locked in a folder, and no mark says to be whole; nothing of it may be there yet."""
    for entry in [] if filesystem.renames(folder) else filesystem.entries_if_any(folder):
        new = destination_of(folder / entry.name)
        if new.name != entry.name and not is_marked(new) and filesystem.exists(lock_of(new)):
            yield new


def is_built_in(place: Path) -> bool:
    """True for what runs of ours call the places where they build."""
    return place.name.startswith(".") and STAGING_MARK in place.name


def claim_in(built: Path) -> Claim | None:
    """What is said of the run that builds in such a place, or did; None where nothing tells."""
    new = built.with_name(built.name[1 : built.name.rindex(STAGING_MARK)])
    return claim_on(new, [built])


def refuse_locked(path: Path, *around: Path) -> None:
    """Refuse what a run of ours is writing where nothing can be renamed; see ``lock_on``.

    Raises:
        CheckpointError: so; or ServiceFails: that run has ended since it was looked for.
    """
    if (lock := lock_on(path, *around)) is None:
        return
    try:
        claim = claim_of(lock)
    except FileNotFoundError:
        raise _has_changed(path, "a run of surgery has ended there just now") from None
    raise claimed(claim, path)


def refuse_locked_in(folder: Path, step: int | None = None) -> None:
    """The same for all that stands in a folder; or for what is that step of it."""
    for new in locked_in(folder):
        named = step_name(new.name)
        if step is None or (named is not None and named.number == step):
            refuse_locked(new)


def refuse_moving(*folders: Path) -> None:
    """Refuse where nothing can be renamed what is written to right now: it holds another than was seen, or its mark.

    Whoever refuses it for what is missing asks before, a mark too: folders are looked at one after the other.

    Raises:
        ServiceFails: so.
    """
    for folder in folders:
        if filesystem.renames(folder):
            continue
        seen = filesystem.entries_if_any(folder)
        filesystem.forget(folder)
        if filesystem.entries_if_any(folder) != seen or is_marked(folder):
            raise _has_changed(folder, "what stands there is another than a moment ago")


def _has_changed(path: Path, why: str) -> ServiceFails:
    return ServiceFails(f"'{path}' changed while it was read", why=why, fix="run the command again")


@contextmanager
def locks_first(path: Path) -> Iterator[None]:
    """Of what does not open since it is being written, that is said, and not what is missing yet."""
    try:
        yield
    except CheckpointError:
        refuse_locked(path, path.parent)
        if not is_marked(path, path.parent):
            refuse_moving(path)
        raise


def claim_on(destination: Path, built: Sequence[Path]) -> Claim | None:
    """What is said of the run that builds a destination, or did, on a disk in one of these places; dead ones last."""
    if isinstance(destination, BucketPath):
        with suppress(FileNotFoundError):
            return claim_of(lock_of(destination))
        return None
    owners = {place: owner_of(place) for place in built if is_staging(place.name)}
    claims = [claim_by(who, place, str(destination)) for place, who in owners.items() if who]
    return min(claims, key=lambda claim: claim.state is State.DEAD, default=None)


def claimed(claim: Claim, path: Path | None = None) -> CheckpointError:
    """The error for what a run has; where that may be over, it says how to see what stands at ``path``."""
    fix = claim.fix
    if path is not None and claim.state is not State.LIVING:
        fix = f"{fix}; {seen_before(path)}"
    error = LeftBehindError if claim.state is State.DEAD else BeingWrittenError
    return error(claim.what, why=claim.why, fix=fix, path=claim.destination)


def seen_before(path: Path) -> str:
    """How to see what a killed run has left, before that is removed."""
    return f"`surgery rescue {quote(str(path))}` shows before what is whole of it"
