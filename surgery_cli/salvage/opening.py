"""Checkpoints opened by commands; the error of one that does not open says what a rescue would find."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from shlex import quote

import msgspec

from surgery_cli.errors import (
    BeingWrittenError,
    CheckpointError,
    LeftBehindError,
    LimitError,
    ServiceFails,
    SurgeryError,
)
from surgery_cli.inputs.buckets import path_at
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import reading
from surgery_cli.store.open.checkpoint import Checkpoint, open_checkpoint


def opened(text: str, *, step: int | None = None, item: str | None = None) -> Checkpoint:
    """The checkpoint that ``text`` names, with its tree; of one that does not open it is said what a rescue would find.

    Raises:
        SurgeryError: it does not open.
    """
    place, named = path_at(text), ""
    try:
        checkpoint = open_checkpoint(text, step=step, item=item)
        location = checkpoint.location
        if location.shape == "root" and location.step_directory is not None:
            place, named = location.step_directory, location.address
        with reading(location.root):
            _ = checkpoint.tree
    except CheckpointError as error:
        raise with_rescue(error, place, named) from None
    return checkpoint


def with_rescue(error: CheckpointError, path: Path, named: str = "") -> SurgeryError:
    """The error of a checkpoint that does not open, saying what a rescue would find in it, if that is anything.

    ``named``: how it is named as a step of its run, of which a rescue makes a run.
    """
    if isinstance(error, LimitError | ServiceFails):
        return error
    if isinstance(error, BeingWrittenError | LeftBehindError):
        destination = error.problems[0].path  # of the run: a step, or an item, of what was named
        return _of_two(path_at(destination) if destination else path) or error
    # twenty modules that only a broken checkpoint asks for
    from surgery_cli.salvage.glance import glance

    found = glance(path)
    if found is None:
        return _of_two(path) or error
    if not found.is_searched:  # what hinders a look hinders a rescue
        return error
    named = _address(named, path)
    if not found.whole and found.is_least:
        return _with_search(error, named)
    if not found.whole or (found.whole == found.leaves and filesystem.is_file(path)):
        return error
    first, *rest = error.problems
    fix = f"`surgery rescue {quote(named)}` would find {found}{found.without}"
    if first.fix and "surgery rescue" not in first.fix:
        fix = f"{fix}; else {first.fix}"
    return error.retold([msgspec.structs.replace(first, fix=fix), *rest])


def _of_two(path: Path) -> SurgeryError | None:
    """The error of what is half replaced, of which nothing may be taken; None where that cannot be looked up."""
    from surgery_cli.store.write.half_replaced import half_replaced

    try:
        mixture = half_replaced(filesystem.real(path))
    except (OSError, SurgeryError):
        return None
    return None if mixture is None else CheckpointError(mixture)


def _address(named: str, path: Path) -> str:
    """A step by its run and number, if a rescue takes it for that: several may have that number."""
    from surgery_cli.salvage.steps import step_named

    with suppress(OSError, SurgeryError):
        if named and step_named(path_at(named)) == path:
            return named
    return str(path)


def _with_search(error: CheckpointError, named: str) -> SurgeryError:
    """The error of a checkpoint of which not all could be searched in a moment."""
    first, *rest = error.problems
    if "surgery rescue" in first.fix:
        return error
    fix = f"`surgery rescue {quote(named)}` searches all of it"
    fix = f"{fix}; else {first.fix}" if first.fix else fix
    return error.retold([msgspec.structs.replace(first, fix=fix), *rest])
