"""What a destination lies in: a step, a tree, or nothing that is read as one."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import Listing, holds_pytree, reading
from surgery_cli.store.filesystem.names import step_name
from surgery_cli.store.locate.items import ITEM_SIDECARS, STEP_SIDECARS, holds_items

_LEVELS: Final = 3
"""Of folders above a destination: an item lies in a step, and a folder may lie in that."""

_TELLING: Final = ITEM_SIDECARS | STEP_SIDECARS


def folders_above(target: Path) -> list[Path]:
    """The folders that may be, or belong to, a checkpoint; in a bucket, where to look is a request, the nearest."""
    levels = 1 if isinstance(target, BucketPath) else _LEVELS
    return [
        one for one in filesystem.absolute(target).parents[:levels] if filesystem.is_folder(one)
    ]


def checkpoint_at(folder: Path) -> Listing | None:
    """A folder that is a tree or a step; None for another.

    In a bucket its own files tell, or that it is called like a step: a look into each of a thousand folders that stand
    in it would be as many requests.
    """
    with reading(folder):
        listing = Listing.of(folder)
        may_be_many = isinstance(folder, BucketPath) and step_name(folder.name) is None
        if may_be_many and not listing.files & _TELLING:
            return None
        return listing if holds_pytree(listing) or holds_items(listing) else None
