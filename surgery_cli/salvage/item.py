"""One tree of leaves of a broken checkpoint: what it had, and what is left of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import msgspec

from surgery_cli.engine.digests import LeafDigest
from surgery_cli.engine.progress import Listener
from surgery_cli.errors import CheckpointError, UnseenError
from surgery_cli.inputs.limits import CHUNKS
from surgery_cli.salvage.aggregate import is_aggregate
from surgery_cli.salvage.databases import databases_of, values_of
from surgery_cli.salvage.decoded_arrays import decoded, digest_of
from surgery_cli.salvage.descriptions import described_by_others
from surgery_cli.salvage.file_leaf import FileLeaf
from surgery_cli.salvage.folders import add_values_of_folders
from surgery_cli.salvage.leaf_states import lost, of_file, of_text
from surgery_cli.salvage.leaves import (
    FoundArray,
    SavedLeaf,
    contradiction,
    found_arrays,
    lacks_stored,
    missing_blocks,
)
from surgery_cli.salvage.side_documents import json_at, side_files, what_holds
from surgery_cli.salvage.spelling import respelled
from surgery_cli.salvage.states import Route, State
from surgery_cli.salvage.structure import Likeness, Structure, named, structure_of
from surgery_cli.salvage.values import Values
from surgery_cli.store import filesystem
from surgery_cli.store.orbax.sidecars import (
    AGGREGATE,
    ARRAY_METADATAS,
    EMPTY_TYPES,
    METADATA,
    SHARDING,
    STORES_FILL_VALUES,
    STRINGS,
    VALUE_TYPES,
    Entry,
    kind_of,
)
from surgery_cli.store.orbax.unmerged import holds_files
from surgery_cli.store.orbax.zarr import DOCUMENT_NAMES
from surgery_cli.tree import json_pointer
from surgery_cli.tree.paths import LeafPath, stored_name
from surgery_cli.tree.specs import LeafKind

_NOTHING: Final = "nothing of it was found"
_OF_A_PROCESS: Final = re.compile("process_")


def is_item(folder: Path) -> bool:
    """True if a folder holds, or held, the arrays of a tree."""
    if filesystem.is_file(folder / METADATA) or filesystem.is_file(folder / SHARDING):
        return True
    if is_aggregate(folder / AGGREGATE):
        return True
    if databases_of(folder) or holds_files(folder / ARRAY_METADATAS, _OF_A_PROCESS):
        return True
    return any(
        name in DOCUMENT_NAMES.values()
        for entry in filesystem.entries_if_any(folder)
        if entry.is_folder
        for name in filesystem.names(folder / entry.name)
    )


class BrokenItem:
    """Everything of a tree that can be found below a folder. Nothing is written there.

    ``like`` gives names and nesting where the metadata is lost.
    """

    def __init__(
        self,
        directory: Path,
        like: Likeness | None = None,
        *,
        scans: bool = True,
        distrusted: frozenset[str] = frozenset(),
        listener: Listener | None = None,
    ) -> None:
        """``scans``: data files are searched through for nodes to which nothing leads, and ``listener`` is told how
        far. ``distrusted`` are small files that are not what was sealed.
        """
        self.directory = directory
        self._like = like
        self._scans = scans
        self.distrusted = distrusted
        self._listener = listener
        self.respelled: dict[str, str] = {}
        """Names of arrays that are stored under another form of the same text, with that."""
        self.odd_types: dict[LeafPath, str] = {}
        """Leaves of a type that nobody knows, as damage leaves it: what is stored tells that they are arrays."""

    @cached_property
    def databases(self) -> list[Path]:
        return databases_of(self.directory)

    @cached_property
    def values(self) -> Values:
        found = values_of(
            self.directory, self.databases, scans=self._scans, listener=self._listener
        )
        add_values_of_folders(self.directory, found)
        return found

    @cached_property
    def _described(self) -> Structure:
        found = structure_of(self.directory)
        faults = dict.fromkeys(sorted(self.distrusted), "it is not what was sealed")
        return msgspec.structs.replace(found, faults={**faults, **found.faults})

    @cached_property
    def _arrays(self) -> tuple[dict[str, FoundArray], dict[str, str]]:
        elsewhere = {} if self._like is None else self._like.documents
        names = self._entries_by_name.keys() | self._described.expected
        found, faults = found_arrays(self.values, names | elsewhere.keys())
        self.respelled = respelled(names - found.keys(), found.keys() - names)
        for name, stored in self.respelled.items():
            found[name] = msgspec.structs.replace(found.pop(stored), name=name)
        if self._leaves_zeros_out:
            found = {name: self._with_unstored(array) for name, array in found.items()}
        others, doubts = described_by_others(
            self.values, faults.keys() - found.keys(), found, elsewhere, self._contradiction
        )
        return found | others, faults | doubts

    @cached_property
    def _leaves_zeros_out(self) -> bool:
        """True if chunks may lack that equal the fill value: by a whole database and whole metadata."""
        said, head = self._described, self._described.head
        is_sound = said.origin == "metadata" and METADATA not in said.faults and not said.odd
        return is_sound and not head.get(STORES_FILL_VALUES) and self.values.is_walked

    def _with_unstored(self, array: FoundArray) -> FoundArray:
        """The array, if all that it lacks was never stored, as one that lacks nothing."""
        lacking = 0 if array.is_complete else array.document.chunk_count - len(array.chunks)
        is_so = (
            0 < lacking <= CHUNKS.most
            and array.document.has_fill_value
            and array.described.route == "manifest"
            and not lacks_stored(array, self.values)
        )
        return msgspec.structs.replace(array, has_unstored=True) if is_so else array

    def _contradiction(self, array: FoundArray, entry: Entry | None = None) -> str:
        said = self._entries_by_name.get(array.name, {}) if entry is None else entry
        return contradiction(array, said, self._described.recorded.get(array.name, ()))

    @cached_property
    def _entries_by_name(self) -> dict[str, Entry]:
        return {stored_name(path): entry for path, entry in self._described.entries.items()}

    @property
    def arrays(self) -> dict[str, FoundArray]:
        """The arrays that something describes, by their stored names."""
        return self._arrays[0]

    @cached_property
    def structure(self) -> Structure:
        texts = [name for name, text in (self.strings or {}).items() if isinstance(text, str)]
        return named(self._described, self._stored_now(), texts, self._like)

    def _stored_now(self) -> set[str]:
        """The names of arrays that are there now: where a manifest stands, what only earlier ones lead to is dead."""
        ways: dict[str, Route] = {name: one.described.route for name, one in self.arrays.items()}
        if self._described.origin != "metadata" or "manifest" not in ways.values():
            return set(ways)
        return {name for name, way in ways.items() if way in ("manifest", "leaf folder")}

    @cached_property
    def strings(self) -> dict[str, Any] | None:
        document = json_at(self.directory, STRINGS, {})
        return document if isinstance(document, dict) else None

    @property
    def inline(self) -> Mapping[LeafPath, FileLeaf]:
        """The leaves whose values stand, or stood, in ``checkpoint``."""
        aggregate = self._described.aggregate
        return {} if aggregate is None else aggregate.values

    @cached_property
    def untrue(self) -> dict[str, dict[str, str]]:
        """What the small files about arrays say of them that is not so, by file and stored name."""
        documents = {name: array.document for name, array in self.arrays.items()}
        entries = {stored_name(path): entry for path, entry in self.structure.entries.items()}
        files = [name for name in side_files(self.directory) if name not in self.structure.faults]
        return {name: what_holds(self.directory, name, documents, entries)[1] for name in files}

    @property
    def stored_bytes(self) -> int:
        """Bytes of chunks that were found."""
        return sum(array.stored_bytes for array in self.arrays.values())

    @property
    def zarr(self) -> int:
        versions = {array.document.zarr for array in self.arrays.values()}
        declared = self.structure.head.get("use_zarr3")
        return 3 if 3 in versions or (not versions and declared) else 2

    @property
    def is_ocdbt(self) -> bool:
        return bool(self.databases) or bool(self.structure.head.get("use_ocdbt"))

    def leaves(
        self,
        memory_bytes: int,
        recorded: Mapping[LeafPath, LeafDigest],
        read: Callable[[int], None] = lambda _: None,
    ) -> dict[LeafPath, SavedLeaf]:
        """Every leaf with what is left of it: every byte is read, once.

        What decodes to other values than those of the digest that is ``recorded`` is lost. ``read`` is told of so many
        bytes after each.
        """
        found = {}
        for path, entry in self.structure.entries.items():
            found[path] = self._leaf(path, entry, recorded.get(path), memory_bytes)
            array = found[path].array
            read(0 if array is None else array.stored_bytes)
        return found

    def _leaf(
        self, path: LeafPath, entry: Entry, known: LeafDigest | None, memory_bytes: int
    ) -> SavedLeaf:
        value_type, name = str(entry["value_type"]), stored_name(path)
        if value_type in EMPTY_TYPES:
            return SavedLeaf(path=path, entry=entry, state="whole", value=value_type)
        try:
            kind = kind_of(value_type, None)
        except CheckpointError:
            self.odd_types[path] = value_type
            kind, entry = LeafKind.ARRAY, {**entry, "value_type": VALUE_TYPES[LeafKind.ARRAY]}
        if kind is LeafKind.STRING and path not in self.inline:
            return of_text(path, entry, json_pointer.text_at(self.strings, name), known)
        array = self.arrays.get(name)
        if array is None and path in self.inline:
            return of_file(path, entry, self.inline[path], known, memory_bytes)
        if array is None:
            return lost(path, entry, self._arrays[1].get(name, _NOTHING))
        return self._array(path, entry, array, known, memory_bytes)

    def _array(
        self,
        path: LeafPath,
        entry: Entry,
        array: FoundArray,
        known: LeafDigest | None,
        memory_bytes: int,
    ) -> SavedLeaf:
        if array.is_disputed:
            why = "two trees hold different values of it, and no manifest says which is newer"
            return lost(path, entry, why)
        if known is None and (against := self._contradiction(array, entry)):
            return lost(path, entry, f"what describes it is damaged: {against}")
        why = f"{array.document.chunk_count - len(array.chunks)} of {array.document.chunk_count} chunks are not there"
        if known is None and (faults := array.contradictory()):
            sound = {place: one for place, one in array.chunks.items() if place not in faults}
            array = msgspec.structs.replace(array, chunks=sound, has_unstored=False)
            why = next(iter(faults.values()))
        if array.is_complete:
            try:
                digest = digest_of(array, path, known, memory_bytes)
            except UnseenError:
                raise
            except CheckpointError as error:
                why = error.problems[0].why
            else:
                return decoded(path, entry, array, digest, known)
        present = array.decoding()
        missing, share = missing_blocks(array, present)
        left = msgspec.structs.replace(array, chunks=present, has_unstored=False)
        state: State = "partly" if present else "lost"
        return SavedLeaf(
            path=path, entry=entry, state=state, array=left, missing=missing, share=share, why=why
        )
