"""Whether somebody may be told to remove what stands at a destination, as a whole."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

from surgery_cli.errors import SurgeryError
from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.inputs.suffixes import FILE_SUFFIXES
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import Listing, holds_pytree, removal_of
from surgery_cli.store.filesystem.protocol import COMMIT_MARK
from surgery_cli.store.locate.items import ITEM_SIDECARS, STEP_SIDECARS, holds_items
from surgery_cli.store.locate.steps import find_steps
from surgery_cli.surgery.put_into import checkpoint_around

_OF_A_CHECKPOINT: Final = (ITEM_SIDECARS | STEP_SIDECARS) - {COMMIT_MARK, "checkpoint"}


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
    """True for a file or a link, and for a folder that is one tree or step, whatever is wrong with it, or holds a few
    files that are no checkpoints.
    """
    if filesystem.is_link(target) or not filesystem.is_folder(target):
        return True
    real = filesystem.real(target)
    if not isinstance(real, BucketPath):
        here = filesystem.real(Path.cwd())
        if real == here or real in here.parents:
            return False
    with suppress(SurgeryError, OSError):
        listing = Listing.of(real)
        if holds_pytree(listing) or holds_items(listing) or listing.files & _OF_A_CHECKPOINT:
            return True
        if any(name == "d" or name.startswith("ocdbt.") for name in listing.folders):
            return True  # data without its manifest
        of_others = any(Path(name).suffix in FILE_SUFFIXES for name in listing.files)
        return not (listing.folders or of_others or find_steps(listing))
    return False
