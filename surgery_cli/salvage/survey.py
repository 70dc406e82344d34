"""Everything that is left of a broken checkpoint, leaf by leaf, with what proves it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec
from msgspec import UNSET

from surgery_cli.engine.digests import LeafDigest
from surgery_cli.engine.progress import Listener, Meter
from surgery_cli.errors import CheckpointError, UnseenError
from surgery_cli.proof.on_record import knows
from surgery_cli.proof.surgery_json import Record, decoded
from surgery_cli.salvage.file import BrokenFile, format_of_broken
from surgery_cli.salvage.item import BrokenItem
from surgery_cli.salvage.leaves import SavedLeaf
from surgery_cli.salvage.likeness import Alike
from surgery_cli.salvage.lost_items import counted_items, lost_trees
from surgery_cli.salvage.place import BrokenPlace, undecodable_beside
from surgery_cli.salvage.seals import others_unlike_seal, sidecars_unlike_seal
from surgery_cli.salvage.states import LostItem
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.names import RECORD
from surgery_cli.store.filesystem.small_files import read_small
from surgery_cli.store.open.file_item import FileItem
from surgery_cli.store.write.commit_marks import record_beside
from surgery_cli.tree.paths import LeafPath

_OTHERWISE: Final = ("decodes", "checksum")
"""What proves a leaf that has another digest on record than its values: only one beside a file is not gone by."""


class Survey(msgspec.Struct, frozen=True):
    """What was found: every leaf, by item, '' for one without a name."""

    place: BrokenPlace
    items: dict[str, BrokenItem | BrokenFile]
    leaves: dict[str, dict[LeafPath, SavedLeaf]]
    lost_items: list[LostItem]
    """Items of which nothing is left, and what beside the trees is not what was sealed, or does not decode."""
    record_fault: str = ""
    """What is wrong with the record of digests, if it cannot be gone by."""
    records: dict[str, Record] = {}
    """Those that tell of runs before: of the step, called '', and of items that were put into it, by their names."""

    @property
    def lost(self) -> set[str]:
        """What these are called."""
        return {one.name for one in self.lost_items}

    def path(self, item: str, inner: LeafPath) -> LeafPath:
        """See ``BrokenPlace.path``."""
        return self.place.path(item, inner)


def survey(
    place: BrokenPlace,
    like: Alike,
    memory_bytes: int,
    listener: Listener | None,
    other: FileItem | None = None,
) -> Survey:
    """Read every byte of what is left; ``like`` gives the structure where the metadata is lost, ``other`` of a file."""
    items: dict[str, BrokenItem | BrokenFile] = {}
    leaves: dict[str, dict[LeafPath, SavedLeaf]] = {}
    record, fault = record_of(place)
    records = {} if record is None else {"": record}
    for name, folder in place.items.items():
        form = format_of_broken(folder) if filesystem.is_file(folder) else None
        distrusted = sidecars_unlike_seal(place, folder, record)
        item = items[name] = (
            BrokenItem(folder, like(name), distrusted=distrusted, listener=listener)
            if form is None
            else BrokenFile(folder, form, other)
        )
        meter = Meter(listener, "reading", item.stored_bytes)
        about = _about(record, place, name)
        if about is not None and about is not record:
            records[name] = about
        known = _recorded(about, name, item.structure.entries)
        leaves[name] = item.leaves(memory_bytes, known, meter.advance)
        if any(leaves[name][path].proof in _OTHERWISE for path in known):
            records.pop("", None)  # what is taken for another save has not its history
    lost = lost_trees(place, items, [name for name in items if not leaves[name]], record)
    others = undecodable_beside(place, memory_bytes) | others_unlike_seal(place, record)
    return Survey(place, items, leaves, counted_items(place, lost, others, record), fault, records)


def _about(record: Record | None, place: BrokenPlace, name: str) -> Record | None:
    """The record that is about an item: that of the step, or its own, where it was put into the step later."""
    own, _ = _record_in(place.items[name]) if name else (None, "")
    if own is not None and (record is None or not knows(record, own, name, [*place.items])):
        return own
    if not name or (record is not None and record.is_about(name, [*place.items])):
        return record
    is_said = record is not None and record.trees is not UNSET and len(place.items) > 1
    return None if is_said else record


def _recorded(
    record: Record | None, name: str, paths: Iterable[LeafPath]
) -> dict[LeafPath, LeafDigest]:
    """The digests on record of the leaves of an item, which a record of several names from the item on."""
    found: dict[LeafPath, LeafDigest] = {}
    if record is None:
        return found
    for inner in paths:
        alone = record.digests.get(inner.spelling)
        digest = record.digests.get(LeafPath((name, *inner)).spelling, alone) if name else alone
        if digest is not None:
            found[inner] = digest
    return found


def record_of(place: BrokenPlace) -> tuple[Record | None, str]:
    """The record that the broken checkpoint carries, if it is as it was written; else what is wrong with it."""
    return _record_in(place.root)


def _record_in(root: Path) -> tuple[Record | None, str]:
    is_file = filesystem.is_file(root)
    file = record_beside(root) if is_file else root / RECORD
    try:
        return (decoded(read_small(file), file) if filesystem.is_file(file) else None), ""
    except UnseenError:
        raise
    except CheckpointError as error:
        return (
            None,
            f"'{file.name}' is damaged, and no digest on record counts: {error.problems[0].why}",
        )
