"""What runs of ours are writing: who each is, and the error for whoever reads it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from shlex import quote

from surgery_cli.errors import BeingWrittenError, CheckpointError
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
    return None if claim is None or claim.state is State.DEAD else claim


def is_marked(*folders: Path) -> bool:
    """True if one of them has Orbax's mark that it is whole."""
    return any(filesystem.is_file(folder / COMMIT_MARK) for folder in folders)


def is_built_in(place: Path) -> bool:
    """True for what runs of ours call the places where they build."""
    return place.name.startswith(".") and STAGING_MARK in place.name


def claim_in(built: Path) -> Claim | None:
    """What is said of the run that builds in such a place, unless that is surely dead."""
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


def claim_on(destination: Path, built: Sequence[Path]) -> Claim | None:
    """What is said of a run that builds a destination, on a disk in one of these places, unless that is surely dead."""
    if isinstance(destination, BucketPath):
        lock = lock_of(destination)
        with suppress(FileNotFoundError):
            claim = claim_of(lock)
            return None if claim.state is State.DEAD else claim
        return None
    for place in built:
        owner = owner_of(place)
        if is_staging(place.name) and owner is not None and owner.state is not State.DEAD:
            return claim_by(owner, place, str(destination))
    return None


def claimed(claim: Claim, path: Path | None = None) -> CheckpointError:
    """The error for what a run has; where that may be over, it says how to see what stands at ``path``."""
    if claim.state is State.DEAD:
        return CheckpointError(claim.what, why=claim.why, fix=claim.fix)
    fix = claim.fix
    if path is not None and claim.state is not State.LIVING:
        fix = f"{fix}; `surgery rescue {quote(str(path))}` shows before what is whole of it"
    return BeingWrittenError(claim.what, why=claim.why, fix=fix)
