"""How much of a checkpoint that does not open a rescue would find, without decoding."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from surgery_cli.errors import (
    BeingWrittenError,
    LimitError,
    NotPermittedError,
    ServiceFails,
    SurgeryError,
)
from surgery_cli.salvage.decoded_arrays import spec_of
from surgery_cli.salvage.file import BrokenFile, format_of_broken
from surgery_cli.salvage.item import BrokenItem
from surgery_cli.salvage.leaves import contradiction
from surgery_cli.salvage.lost_items import counted_items, lost_trees
from surgery_cli.salvage.older_steps import path_there
from surgery_cli.salvage.place import BrokenPlace, find_broken
from surgery_cli.salvage.states import LostItem, said_lost
from surgery_cli.salvage.survey import record_of
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.names import RECORD
from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.store.orbax.sidecars import EMPTY_TYPES, VALUE_TYPES
from surgery_cli.tree import json_pointer
from surgery_cli.tree.paths import LeafPath, stored_name
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.words.quantities import leaves_text

_SCANNED_BYTES: Final = 1 << 30
"""Data files are searched through for what nothing leads to if that takes a second, not if it takes minutes."""


class Glance(NamedTuple):
    """Of so many leaves, how many have all their chunks; with ``is_least``, there may be more.

    Without ``has_structure``, names of arrays alone tell what some tree was; without ``place``, what is there could not
    be looked at, and nothing is known of it. ``lost_items`` are lost as a whole; ``lacking`` are leaves that have not
    all, by item, with what describes their arrays, if anything does.
    """

    whole: int
    leaves: int
    is_least: bool
    has_structure: bool
    lost_items: tuple[LostItem, ...] = ()
    place: BrokenPlace | None = None
    lacking: tuple[tuple[str, LeafPath, LeafSpec | None], ...] = ()

    @property
    def is_searched(self) -> bool:
        """False if what is there could not be looked at."""
        return self.place is not None

    @property
    def is_sure_of_none(self) -> bool:
        """True if all that is there was searched, and no whole leaf was found."""
        return not self.whole and not self.is_least

    @property
    def lost(self) -> list[str]:
        """What the items are called that are lost."""
        return [one.name for one in self.lost_items]

    @property
    def without(self) -> str:
        """The rest of a sentence that says how many leaves there are: which items are lost beside."""
        return f", and {said_lost(self.lost_items)}" if self.lost_items else ""

    def __str__(self) -> str:
        least = "at least " if self.is_least else ""
        return f"{least}{self.whole:,} of {leaves_text(self.leaves)}"


def glance(path: Path) -> Glance | None:
    """What is left of a broken checkpoint; None where nothing of a tree is there."""
    try:
        return _glance(path)
    except (OSError, BeingWrittenError, LimitError, NotPermittedError, ServiceFails):
        return Glance(0, 0, is_least=True, has_structure=False)
    except SurgeryError:
        return None


def _glance(path: Path) -> Glance:
    place = find_broken(path)
    size = sum(filesystem.size(file) for file in filesystem.files_below(place.root))
    scans = size <= _SCANNED_BYTES
    whole = count = 0
    has_structure = True
    # by a record it is judged what contradicts itself
    has_record = filesystem.is_file(place.root / RECORD)
    record, _ = record_of(place)
    lacking = []
    items: dict[str, BrokenItem | BrokenFile] = {}
    empty = []
    for name, folder in place.items.items():
        if filesystem.is_file(folder):
            form = format_of_broken(folder)
            leaves = {}
            if form is not None:
                items[name] = file = BrokenFile(folder, form)
                leaves = file.found.leaves
            whole += sum(leaf.read is not None for leaf in leaves.values())
            count += len(leaves)
            continue
        items[name] = item = BrokenItem(folder, scans=scans)
        empty += [] if item.structure.entries or not scans else [name]
        has_structure &= item.structure.is_known
        for leaf, entry in item.structure.entries.items():
            array = item.arrays.get(stored_name(leaf))
            if entry["value_type"] in EMPTY_TYPES:
                is_there = True
            elif entry["value_type"] == VALUE_TYPES[LeafKind.STRING] and leaf not in item.inline:
                is_there = json_pointer.text_at(item.strings, stored_name(leaf)) is not None
            elif array is None:
                is_there = leaf in item.inline and item.inline[leaf].read is not None
            else:
                said = item.structure.recorded.get(stored_name(leaf), ())
                is_there = array.is_complete and not array.assumes
                is_there &= has_record or not contradiction(array, entry, said)
            whole += is_there
            count += 1
            if not is_there:
                is_known = array is not None and not array.assumes
                spec = spec_of(array, LeafKind.ARRAY) if array and is_known else None
                lacking.append((name, leaf, spec))
    return Glance(
        whole,
        count,
        is_least=not scans,
        has_structure=has_structure,
        lost_items=tuple(counted_items(place, lost_trees(place, items, empty, record), {}, record)),
        place=place,
        lacking=tuple(lacking),
    )


def could_fill(other: str, left: Glance | None) -> bool:
    """True unless the metadata of the other checkpoint show that it cannot give what is lacking."""
    if left is None or left.place is None:
        return True
    try:
        checkpoint = open_checkpoint(other)
        specs = {stored_name(path): spec for path, spec in checkpoint.tree.items()}
        for item, inner, spec in left.lacking:
            there = specs.get(stored_name(path_there(checkpoint, left.place, item, inner)))
            if there is None or (spec and (there.shape, there.dtype) != (spec.shape, spec.dtype)):
                return False
    except SurgeryError:
        return False
    return True
