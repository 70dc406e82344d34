"""What was a checkpoint, or a step of a run, whether or not it still opens: told by its name and a look inside."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

from surgery_cli.errors import NotPermittedError
from surgery_cli.salvage.item import is_item
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import Listing, holds_pytree, starts_as_msgpack
from surgery_cli.store.filesystem.names import is_leftover, step_name, unfinished_name
from surgery_cli.store.locate.items import STEP_METADATA, is_step, step_items
from surgery_cli.store.locate.steps import FILES_OF_A_STEP, checkpoints_in

_STEP_FILES: Final = FILES_OF_A_STEP | {"_CHECKPOINT_DELETION"}


def is_meant_as_step(path: Path, prefix: str, prefixes: Collection[str]) -> bool:
    """Whether what is called like a step is one of its run, or what is left of one.

    What nothing is left of is told by its prefix: one of ``prefixes``, which mean steps. Another word may be anybody's
    (`logs_2024`).

    Raises:
        NotPermittedError: this user may not look.
    """
    if filesystem.is_file(path):
        return starts_as_msgpack(path) or (prefix in prefixes and not filesystem.size(path))
    if not filesystem.is_folder(path):
        return False
    # no manager puts checkpoints of their own into a step
    is_sure = prefix in prefixes and not holds_checkpoints(Listing.of(path))
    return is_sure or was_checkpoint(path)


def is_one_checkpoint(path: Path) -> bool:
    """True for a folder that is one checkpoint, or what is left of one; False for one in which several stand."""
    if unfinished_name(path.name) is not None or is_leftover(path.name):
        return True
    listing = Listing.of(path)
    if holds_pytree(listing) or listing.files & _STEP_FILES or held_tree(path):
        return True
    if holds_checkpoints(listing):
        return False
    own = step_name(path.name)
    if own is not None and not own.prefix:  # a step, whatever its items are called
        return bool(step_items(listing).names) or _holds_item(listing)
    if any(step_name(unfinished_name(name) or name) for name in listing.folders):
        return False
    return _holds_item(listing)


def holds_checkpoints(listing: Listing) -> bool:
    """As ``checkpoints_in``; False where this user may not look."""
    with suppress(NotPermittedError):
        return bool(checkpoints_in(listing))
    return False


def held_tree(path: Path) -> bool:
    """As ``is_item``; False where this user may not look."""
    try:
        return is_item(path)
    except PermissionError:
        return False


def _holds_item(listing: Listing) -> bool:
    """True if items stand in the folder that are no checkpoints of their own."""
    for name in listing.folders:
        inside = listing.path / name
        if not is_leftover(name) and held_tree(inside):
            return not filesystem.is_file(inside / STEP_METADATA)
    return False


def was_checkpoint(path: Path) -> bool:
    """True for what is a checkpoint, or has parts of one left in it."""
    if not is_one_checkpoint(path):
        return False
    listing = Listing.of(path)
    return is_step(listing) or held_tree(path) or _holds_item(listing)
