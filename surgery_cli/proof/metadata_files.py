"""Metadata held against itself: what Orbax could not read of the files beside the arrays, or would take for another.

Every array names itself in up to four places, and Orbax writes few kinds of text there. Where no digest is on record,
their agreement is all that can be known of these files.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from surgery_cli.proof.sharding_file import lacking_notes
from surgery_cli.proof.side_items import item_faults, root_file_fault
from surgery_cli.proof.step_metadata_file import (
    folder_notes,
    missing_notes,
    step_faults,
    unmarked_notes,
    unreadable_notes,
)
from surgery_cli.proof.tree_files import Fault, tree_faults
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import Listing
from surgery_cli.store.locate.file_formats import FileFormat
from surgery_cli.store.locate.items import handler_kind, item_handlers
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.open.file_item import FileItem
from surgery_cli.store.open.item import PytreeItem
from surgery_cli.store.orbax.ocdbt import OcdbtStore
from surgery_cli.store.orbax.process_databases import copied_databases
from surgery_cli.words.notes import Consequence, Note
from surgery_cli.words.pages import DocsPage


def metadata_faults(checkpoint: Checkpoint) -> list[Fault]:
    """What is wrong with the metadata of the items that were opened, and of the step that holds them."""
    place = checkpoint.location.step_directory or checkpoint.location.root
    found: list[Fault] = []
    if filesystem.is_folder(place):
        found += step_faults(place)
    for item in checkpoint.items.values():
        if isinstance(item, PytreeItem):
            found += _below(place, item.directory, tree_faults(item))
        elif isinstance(item, FileItem) and item.format is FileFormat.FLAX:
            odd = min(item.content.scan.oddities, default=None)
            if odd is not None:
                found.append(
                    (
                        item.directory.name,
                        f"no writer of Flax has written it: {odd.why} (at byte {odd.at})",
                    )
                )
    others = [*checkpoint.location.other_items.values(), *checkpoint.location.root_files]
    return list(dict.fromkeys(found + faults_beside(checkpoint, others)))


def restore_notes(checkpoint: Checkpoint) -> list[Note]:
    """What is lost or in the way and no fault, as Orbax restores every leaf without: which of its restores fail."""
    return [
        *lacking_notes(checkpoint),
        *folder_notes(checkpoint),
        *unreadable_notes(checkpoint),
        *missing_notes(checkpoint),
        *unmarked_notes(checkpoint),
    ]


def copy_notes(checkpoint: Checkpoint) -> list[Note]:
    """Databases of processes that stand there twice, as a file browser copies folders: they change no value."""
    return [
        Consequence(
            DocsPage.CHECKED_BY_VERIFY,
            f"'{item.directory.name}/{name}' holds copies of the files of '{first}': nothing needs it",
        )
        for item in checkpoint.items.values()
        if isinstance(item, PytreeItem) and isinstance(item.store, OcdbtStore)
        for name, first in copied_databases(item.directory)
    ]


def faults_beside(checkpoint: Checkpoint, paths: Iterable[Path]) -> list[Fault]:
    """What is wrong with items that are not opened, or with files of the root."""
    location = checkpoint.location
    place, handlers = location.step_directory or location.root, handlers_of(checkpoint)
    found: list[Fault] = []
    for path in paths:
        if filesystem.is_folder(path):
            found += _below(place, path, item_faults(path, handlers.get(path.name, "")))
        elif fault := root_file_fault(path):
            found += _below(place, path.parent, [(path.name, fault)])
    return found


def side_items(checkpoint: Checkpoint) -> list[Path]:
    """The items that are no trees that a command could choose; an array by itself is stored like one."""
    handlers = handlers_of(checkpoint)
    return [
        path
        for name, path in checkpoint.location.other_items.items()
        if name not in checkpoint.unchosen or handler_kind(handlers.get(name)) == "other"
    ]


def handlers_of(checkpoint: Checkpoint) -> dict[str, str]:
    """Which handler wrote each item of the step, where that is on record."""
    folder = checkpoint.location.folder_of_items
    recorded = None if folder is None else item_handlers(Listing.of(folder))
    return recorded if isinstance(recorded, dict) else {}


def _below(place: Path, folder: Path, faults: Iterable[Fault]) -> list[Fault]:
    """Faults of the files of a folder, with their paths as they are from the step."""
    where = folder.relative_to(place) if folder.is_relative_to(place) else folder
    return [(str(where / file), why) for file, why in faults]
