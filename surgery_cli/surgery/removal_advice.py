"""Whether somebody may be told to remove what stands at a destination, as a whole."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from surgery_cli.errors import SurgeryError
from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import Listing, removal_of
from surgery_cli.store.locate.one_checkpoint import is_one_checkpoint
from surgery_cli.surgery.put_into import checkpoint_around


def or_removed_first(target: Path, other: str = "name another place") -> str:
    """What to do where nothing may come in the place of a destination: ``other``, or to remove it, if that may be said.

    Nobody is told to remove a folder of which it is not known that all in it is one checkpoint: other checkpoints may
    stand there, or files of another kind. Nor the one that a shell stands in.
    """
    around = checkpoint_around(target)
    if around is not None:
        return f"{other}: this one is a part of the checkpoint '{around}'"
    if not _may_go_whole(target):
        return other
    return f"{other}, or remove it first: `{removal_of(target)}`"


def _may_go_whole(target: Path) -> bool:
    """True for a link, an empty folder, and what is one checkpoint, whatever is wrong with it; of others nothing is
    known.
    """
    if filesystem.is_link(target):
        return True
    if is_stood_in(target):
        return False
    real = filesystem.real(target)
    with suppress(SurgeryError, OSError):
        is_empty = filesystem.is_folder(real) and Listing.of(real).is_empty
        return is_empty or is_one_checkpoint(real)
    return False


def is_stood_in(target: Path) -> bool:
    """True for the directory that this runs in, a shell most often too, and for those around it; not for a link."""
    if isinstance(target, BucketPath) or filesystem.is_link(target):
        return False
    real = filesystem.real(target)
    with suppress(OSError):  # it is gone
        here = filesystem.real(Path.cwd())
        return real == here or real in here.parents
    return False
