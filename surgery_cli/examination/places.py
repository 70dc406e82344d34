"""What stands in a run directory, thing by thing, as its name and a look inside tell."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from enum import Enum, auto
from pathlib import Path
from typing import Final, NamedTuple

from surgery_cli.errors import CheckpointError, NotPermittedError
from surgery_cli.examination.temporary_names import writer_of
from surgery_cli.salvage.remains import (
    held_tree,
    is_meant_as_step,
    is_one_checkpoint,
    was_checkpoint,
)
from surgery_cli.salvage.steps import prefixes_of_steps
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import Listing
from surgery_cli.store.filesystem.names import (
    SET_ASIDE_SUFFIX,
    STAGING_MARK,
    is_leftover,
    is_record,
    step_name,
    unfinished_name,
)
from surgery_cli.store.locate.refusals import describe_directory
from surgery_cli.store.locate.step_formats import are_of_one_format
from surgery_cli.store.locate.steps import (
    SURE_PREFIXES,
    belongs_to_root,
    checkpoints_in,
    find_steps,
)

_FLAX_DRAFT: Final = "tmp"
"""What Flax calls a step until it is written: `checkpoint_tmp`, with several hosts' arrays in `checkpoint_tmp_gda`."""


class Kind(Enum):
    """What a thing is meant to be."""

    CHECKPOINT = auto()
    """A step, or another checkpoint, under its own name."""
    SAVE = auto()
    """A save that has not got its name."""
    STAGING = auto()
    """Where a run of surgery builds."""
    SET_ASIDE = auto()
    """What such a run was to replace."""
    FILE = auto()
    """A file that has not got its name."""
    OTHER = auto()
    """Nothing of a run; looked at for its size alone."""


class Place(NamedTuple):
    """A thing that stands somewhere."""

    path: Path
    kind: Kind
    step: int | None = None

    def is_of_run(self, other: Place) -> bool:
        """True unless two steps are named in two formats."""
        names = [unfinished_name(one.path.name) or one.path.name for one in (self, other)]
        return self.step is None or other.step is None or are_of_one_format(*names)

    def is_before(self, other: Place) -> bool:
        """True for a step that the same run saved earlier."""
        if self.step is None or other.step is None or self.step >= other.step:
            return False
        return self.is_of_run(other)


def places_at(path: Path) -> list[Place]:
    """The things in a run directory, steps first, by number; a checkpoint, or what is left of one, is itself alone.

    Of a folder of runs they are these, each to be looked at by itself.

    What runs of surgery have in a checkpoint, or have left there, is a thing of its own.

    Raises:
        CheckpointError: nothing of a checkpoint stands there, or it cannot be looked at.
    """
    if filesystem.is_file(path) or is_one_checkpoint(path):
        places = [_place(path) or Place(path, Kind.CHECKPOINT)]
    else:
        prefixes = prefixes_of_steps(find_steps(Listing.of(path)))
        found = [_place_in(path / name, prefixes) for name in filesystem.names(path)]
        places = [place for place in found if place is not None]
    places += [left for place in places for left in _left_in(place)]
    is_none = all(place.kind is Kind.OTHER for place in places)
    if is_none and not any(inside(place.path) for place in places):
        raise describe_directory(Listing.of(path))
    return sorted(places, key=_order)


def inside(path: Path) -> dict[str, int]:
    """How many steps and other checkpoints stand in a folder that is no checkpoint itself; none of none."""
    if not filesystem.is_folder(path):
        return {}
    with suppress(CheckpointError, PermissionError):
        listing = Listing.of(path)
        steps = {step.name for step in find_steps(listing)}
        others = set(checkpoints_in(listing)) - steps
        found = {"step": len(steps), "checkpoint": len(others)}
        return {what: count for what, count in found.items() if count}
    return {}


def _left_in(place: Place) -> list[Place]:
    """What runs of surgery have in a checkpoint, or have left there: an item that was put into it, say.

    In a bucket nothing is read of the checkpoint as long as it stands there, and its own condition says so.
    """
    is_open = place.kind is Kind.CHECKPOINT and filesystem.renames(place.path)
    if not is_open or not filesystem.is_folder(place.path):
        return []
    with suppress(NotPermittedError, PermissionError):
        left = [name for name in filesystem.names(place.path) if is_leftover(name)]
        return [found for name in left if (found := _place(place.path / name)) is not None]
    return []


def _order(place: Place) -> tuple[bool, bool, int, str]:
    return place.kind is Kind.OTHER, place.step is None, place.step or 0, place.path.name


def _place_in(path: Path, prefixes: Collection[str]) -> Place | None:
    """What a thing in a run directory is; None for what belongs to the directory, or is another name of something."""
    name = path.name
    if is_record(name) or (belongs_to_root(path) and not held_tree(path)):
        return None
    if filesystem.is_link(path) and filesystem.exists(path) and _leads_beside(path):
        return None
    found = None
    with suppress(NotPermittedError):  # what it is, nobody may see
        found = _place(path, prefixes)
        if found is None and filesystem.is_folder(path) and was_checkpoint(path):
            found = Place(path, Kind.CHECKPOINT)
    return found or Place(path, Kind.OTHER)


def _leads_beside(link: Path) -> bool:
    return filesystem.real(link).parent == filesystem.real(link.parent)


def _place(path: Path, prefixes: Collection[str] = SURE_PREFIXES) -> Place | None:
    """As its name tells; None if that does not. ``prefixes`` are those of steps."""
    name = path.name
    if name.endswith(SET_ASIDE_SUFFIX):
        return Place(path, Kind.SET_ASIDE)
    if name.startswith(".") and STAGING_MARK in name:
        return Place(path, Kind.STAGING)
    if (meant := unfinished_name(name)) is not None:
        found = step_name(meant)
        return Place(path, Kind.SAVE, None if found is None else found.number)
    if name.removesuffix("_gda").rpartition("_")[2] == _FLAX_DRAFT:
        return Place(path, Kind.SAVE)
    found = step_name(name)
    if found is not None and is_meant_as_step(path, found.prefix, prefixes):
        return Place(path, Kind.CHECKPOINT, found.number)
    return Place(path, Kind.FILE) if filesystem.is_file(path) and writer_of(name) else None
