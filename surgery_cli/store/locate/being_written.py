"""What runs of ours are writing: who each is, and the error for whoever reads it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote

from surgery_cli.errors import BeingWrittenError, CheckpointError, LeftBehindError
from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.bucket_locks import claim_of, lock_around, lock_of
from surgery_cli.store.filesystem.listing import COMMIT_MARK, STAGING_MARK
from surgery_cli.store.filesystem.owners import is_staging, owner_of
from surgery_cli.store.filesystem.processes import Claim, State, claim_by


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
    elif not filesystem.renames(path) and not is_marked(path, path.parent):
        with suppress(FileNotFoundError):
            claim = None if (lock := lock_around(path)) is None else claim_of(lock)
    if claim is not None and claim.state is State.LIVING:
        raise claimed(claim)
    return claim


def is_marked(*folders: Path) -> bool:
    """True if one of them has Orbax's mark that it is whole."""
    return any(filesystem.is_file(folder / COMMIT_MARK) for folder in folders)


def is_built_in(place: Path) -> bool:
    """True for what runs of ours call the places where they build."""
    return place.name.startswith(".") and STAGING_MARK in place.name


def claim_in(built: Path) -> Claim | None:
    """What is said of the run that builds in such a place, or did; None where nothing tells."""
    new = built.with_name(built.name[1 : built.name.rindex(STAGING_MARK)])
    return claim_on(new, [built])


def refuse_locked(path: Path) -> None:
    """Refuse what a run of ours is writing where nothing can be renamed.

    Raises:
        CheckpointError: so.
    """
    if filesystem.renames(path) or (lock := lock_around(path)) is None:
        return
    with suppress(FileNotFoundError):
        raise claimed(claim_of(lock), path)


@contextmanager
def locks_first(path: Path) -> Iterator[None]:
    """Of what does not open since a run of ours is writing it, that is said, and not what is missing yet."""
    try:
        yield
    except CheckpointError:
        if not is_marked(path, path.parent):
            refuse_locked(path)
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
    return error(claim.what, why=claim.why, fix=fix)


def seen_before(path: Path) -> str:
    """How to see what a killed run has left, before that is removed."""
    return f"`surgery rescue {quote(str(path))}` shows before what is whole of it"
