"""Where the result of a rescue goes, and whether it becomes a run: it does if a run was named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from surgery_cli.errors import DestinationError
from surgery_cli.proof.record_places import check_item_names
from surgery_cli.salvage.place import BrokenPlace
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import Listing, reading, removal_of
from surgery_cli.store.filesystem.names import step_name
from surgery_cli.store.locate.steps import belongs_to_root, beside_steps, find_steps, steps_at
from surgery_cli.store.write.commit_marks import companion_of
from surgery_cli.store.write.destination import (
    OUTSIDE,
    being_written,
    check_address,
    check_destination,
    real_path,
)
from surgery_cli.store.write.half_replaced import half_replaced
from surgery_cli.surgery.record_beside import refuse_called_otherwise
from surgery_cli.surgery.removal_advice import or_removed_first
from surgery_cli.surgery.source_and_destination import path_of
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage


class Target(NamedTuple):
    """The destination; ``step`` is what the one step in it is called where that becomes a run, else ''."""

    path: Path
    step: str = ""
    files: tuple[Path, ...] = ()
    """What stands beside the steps of the broken run, and comes along into a run."""
    notes: tuple[Consequence, ...] = ()

    def step_in(self, new: Path) -> Path:
        """Where the step, or what else was rescued, is built, if ``new`` becomes the destination."""
        return new / self.step if self.step else new


def target_of(destination: str, place: BrokenPlace) -> Target:
    """Where the result goes, after a look at what stands there.

    A run comes of a run, as in every command, and a step of a step. A destination that is called as the broken step is,
    or as a step of the run in which it stands, is that step: a run in the place of one would be no manager's.

    Raises:
        DestinationError: it cannot be used.
    """
    path = path_of(destination, may_renumber=False)
    with reading(path, is_destination=True):
        target = _shaped(path, place)
        _check(target, place)
    return target


def _shaped(path: Path, place: BrokenPlace) -> Target:
    if place.run is None:
        return Target(path)
    name = real_path(path).name
    if name == place.name or (step_name(name) is not None and steps_at(path.parent)):
        said = f"'{place.run}' is a run, and '{path}' a step by its name: a manager finds it in '{path.parent}'"
        return Target(path, notes=(Consequence(DocsPage.RESCUE_WRITES, said),))
    return Target(path, place.name, tuple(_beside_steps(place.run)))


def _beside_steps(run: Path) -> Iterator[Path]:
    """What of a run an edit takes along: the root's own, and plain files, which may be needed to resume."""
    listing = Listing.of(run)
    for file in beside_steps(listing, find_steps(listing)):
        is_file = filesystem.exists(file) and not filesystem.is_folder(file)
        if belongs_to_root(file) or (is_file and step_name(file.name) is None):
            yield file


def _check(target: Target, place: BrokenPlace) -> None:
    check_item_names(place.items)
    path = target.path
    if claim := being_written(path, may_force=False):
        mixture = half_replaced(path)
        raise claim if mixture is None else DestinationError(mixture)
    check_address(path)
    source, other_place = place.root, OUTSIDE
    if target.step and place.run is not None:
        source, free = place.run, place.run / target.step
        if not filesystem.is_taken(free):
            other_place = f"{OUTSIDE}; or '{free}', which becomes a step of that run"
    check_destination(path, source, other_place)
    if filesystem.is_taken(path):
        raise DestinationError(
            f"the destination '{path}' exists",
            why="a rescue replaces nothing",
            fix=or_removed_first(path),
        )
    if filesystem.is_file(place.root) and not target.step:
        _check_record_beside(path)


def _check_record_beside(file: Path) -> None:
    refuse_called_otherwise(file, lambda: True)
    if filesystem.is_taken(record := companion_of(file)):
        raise DestinationError(
            f"'{record}' exists, where the record of the result would stand",
            why="a rescue replaces nothing",
            fix=f"name another destination, or remove it first: `{removal_of(record)}`",
        )
