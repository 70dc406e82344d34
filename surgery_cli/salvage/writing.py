"""Writes a tree anew from what is left of it: encoded values as they were found, in the layout that they had."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from surgery_cli.proof.tree_files import damaged_field
from surgery_cli.salvage.item import BrokenItem
from surgery_cli.salvage.leaves import SavedLeaf
from surgery_cli.salvage.side_documents import side_files, what_holds
from surgery_cli.store import filesystem
from surgery_cli.store.files.msgpack_tree import PLACEHOLDER
from surgery_cli.store.files.msgpack_writing import Stored, write_msgpack
from surgery_cli.store.filesystem.links import Linker
from surgery_cli.store.filesystem.listing import reading
from surgery_cli.store.filesystem.write_failures import write_errors
from surgery_cli.store.orbax.arrays import Window, below
from surgery_cli.store.orbax.contexts import new_context
from surgery_cli.store.orbax.sidecars import (
    AGGREGATE,
    EMPTY_TYPES,
    METADATA,
    STORES_FILL_VALUES,
    STRINGS,
    TREE,
    VALUE_TYPES,
    Entry,
)
from surgery_cli.store.orbax.stored_values import StoredValue, pieces, whole
from surgery_cli.store.orbax.tree_metadata import entry_key, key_records
from surgery_cli.store.orbax.zarr import DOCUMENT_NAMES, ArrayDocument, parse
from surgery_cli.store.write.array_access import open_for_writing
from surgery_cli.store.write.database_versions import keep_newest
from surgery_cli.store.write.transactions import atomic
from surgery_cli.tree import json_pointer
from surgery_cli.tree.paths import LeafPath, stored_name
from surgery_cli.tree.specs import LeafKind

_BATCH_BYTES: Final = 64 << 20
_CONFIG: Final = {"max_decoded_node_bytes": 100_000_000, "max_inline_value_bytes": 1024}
"""As Orbax makes its databases."""


NOTHING: Final[Entry] = {"value_type": "None", "skip_deserialize": True}
"""What is said of an empty place."""


class Filling(Protocol):
    """What stands in the result for what is lost of an array."""

    @property
    def is_whole(self) -> bool:
        """True if it stands for all of the array, and what is left of that is not used."""

    @property
    def blocks(self) -> Sequence[Window]:
        """The blocks that are written with its values, over what is stored."""

    def stored(self, zarr: int) -> Mapping[str, StoredValue]:
        """What is stored for all of the array before that, by key; its description among them."""

    def read(self, window: Window) -> Any:
        """Its values in a block."""


class KeptLeaf(NamedTuple):
    """A leaf of the result: what was left of it, and what fills it if that is an array."""

    leaf: SavedLeaf
    filled: Filling | None = None


def places_kept(paths: Iterable[LeafPath]) -> list[LeafPath]:
    """Where lists lack items before others: something must stand there, or these would move up.

    >>> [str(path) for path in places_kept([LeafPath(("opt", 2, "mu")), LeafPath(("opt", 0))])]
    ['opt/1']
    """
    items: dict[LeafPath, set[int]] = {}
    for path in paths:
        for at, key in enumerate(path):
            if isinstance(key, int):
                items.setdefault(LeafPath(path[:at]), set()).add(key)
    return [
        LeafPath((*node, n))
        for node, held in items.items()
        for n in range(max(held))
        if n not in held
    ]


def write_item(item: BrokenItem, leaves: list[KeptLeaf], target: Path) -> None:
    """Write the tree with these leaves into a new directory.

    Raises:
        WriteError: the disk does not take it.
    """
    filesystem.make_folders(target)
    with write_errors(target.name):
        _write_arrays(item, leaves, target)
        _write_sidecars(item, leaves, target)
        _write_aggregate(item, leaves, target)


def _values_of(kept: KeptLeaf, zarr: int) -> Iterator[tuple[str, StoredValue]]:
    """The encoded values of a leaf, with their keys, its description first."""
    array, filled, name = kept.leaf.array, kept.filled, stored_name(kept.leaf.path)
    if filled is not None and filled.is_whole:
        yield from ((below(name) + key, value) for key, value in filled.stored(zarr).items())
    elif array is not None:
        yield below(name) + DOCUMENT_NAMES[zarr], array.document.raw
        for place, held in array.chunks.items():
            yield below(name) + array.document.key_of(place), held.value


def _document_of(kept: KeptLeaf, zarr: int) -> ArrayDocument | None:
    """What describes the array in the result, if it is one."""
    if kept.filled is not None and kept.filled.is_whole:
        return parse(whole(kept.filled.stored(zarr)[DOCUMENT_NAMES[zarr]]))
    return None if kept.leaf.array is None else kept.leaf.array.document


def _write_arrays(item: BrokenItem, leaves: Iterable[KeptLeaf], target: Path) -> None:
    stored = [kept for kept in leaves if kept.leaf.array is not None or kept.filled is not None]
    if not stored:
        return
    if not item.is_ocdbt:
        for kept in stored:
            for key, value in _values_of(kept, item.zarr):
                filesystem.make_folders((target / key).parent)
                filesystem.write(target / key, pieces(value))
            if kept.filled is not None and kept.filled.blocks:
                base = filesystem.kvstore(target / stored_name(kept.leaf.path))
                _fill(
                    kept.filled,
                    open_for_writing(item.zarr, base, None, new_context(), create=False),
                )
        return
    import tensorstore as ts

    spec = {"driver": "ocdbt", "base": filesystem.kvstore(target), "config": _CONFIG}
    database = ts.KvStore.open(spec, context=new_context()).result()
    for batch in _batches(pair for kept in stored for pair in _values_of(kept, item.zarr)):
        with atomic() as transaction:
            inside = database.with_transaction(transaction)
            for future in [inside.write(key, whole(value)) for key, value in batch]:
                future.result()
    for kept in stored:
        if kept.filled is not None and kept.filled.blocks:
            below_it = database / below(stored_name(kept.leaf.path))
            with atomic() as transaction:
                array = open_for_writing(
                    item.zarr, below_it, None, new_context(), create=False, transaction=transaction
                )
                _fill(kept.filled, array)
    filesystem.forget(target)
    keep_newest(target, None, Linker())


def _fill(filled: Filling, array: Any) -> None:
    """Write the blocks that are missing."""
    for block in filled.blocks:
        array[block].write(filled.read(block)).result()


def _batches(
    pairs: Iterable[tuple[str, StoredValue]],
) -> Iterator[list[tuple[str, StoredValue]]]:
    batch: list[tuple[str, StoredValue]] = []
    size = 0
    for pair in pairs:
        batch.append(pair)
        size += len(pair[1])
        if size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _write_sidecars(item: BrokenItem, leaves: list[KeptLeaf], target: Path) -> None:
    """What stands beside the arrays, for the leaves that there are; as it was, where all of them are."""
    structure = item.structure
    entries = {kept.leaf.path: _to_be_restored(kept.leaf.entry) for kept in leaves}
    stored = {"use_ocdbt": item.is_ocdbt, "use_zarr3": item.zarr == 3}
    said = {name: structure.head.get(name) for name in stored}
    is_true = all(said[name] in (None, stored[name]) for name in stored)
    is_as_it_was = structure.is_of_metadata and is_true and entries == structure.entries
    documents = {
        stored_name(kept.leaf.path): document
        for kept in leaves
        if (document := _document_of(kept, item.zarr)) is not None
    }
    said_of = {stored_name(path): entry for path, entry in entries.items()}
    with reading(item.directory):
        raw = filesystem.read(item.directory / METADATA) if is_as_it_was else None
        files = [one for one in side_files(item.directory) if one not in item.distrusted]
        holding = {one: what_holds(item.directory, one, documents, said_of)[0] for one in files}
    if not _is_of_aggregate(item):
        filesystem.write(
            target / METADATA, raw or _metadata(item, entries, has_unstored=_has_unstored(leaves))
        )
    for file, held in holding.items():
        if held is not None:
            filesystem.make_folders((target / file).parent)
            filesystem.write(target / file, msgspec.json.encode(held))
    texts = [
        (stored_name(kept.leaf.path), kept.leaf.value)
        for kept in leaves
        if kept.leaf.entry["value_type"] == VALUE_TYPES[LeafKind.STRING]
        and kept.leaf.value is not None
        and kept.leaf.path not in item.inline
    ]
    if texts:
        strings = json_pointer.document_of(texts)
        filesystem.write(target / STRINGS, msgspec.json.encode(strings))


def _is_of_aggregate(item: BrokenItem) -> bool:
    """True if the tree stood in ``checkpoint`` alone, and what is known of it comes from there."""
    is_its = item.structure.origin in ("the file `checkpoint`", "the file before its break")
    return is_its and not filesystem.is_file(item.directory / METADATA)


def _write_aggregate(item: BrokenItem, leaves: Iterable[KeptLeaf], target: Path) -> None:
    """The file ``checkpoint``, where there is one: the tree, with values byte by byte, and names of arrays."""
    aggregate = item.structure.aggregate
    if aggregate is None:
        return
    there = aggregate.source.scan.leaves
    packed: dict[LeafPath, Any] = {}
    for kept in leaves:
        path = kept.leaf.path
        said = aggregate.source.placeholders.get(path)
        is_damaged = path in aggregate.arrays and said != stored_name(path)
        if path in there and kept.filled is None and not is_damaged:
            packed[path] = Stored(path)
        elif kept.leaf.entry["value_type"] in EMPTY_TYPES:
            packed[path] = _EMPTY[kept.leaf.entry["value_type"]]
        else:
            packed[path] = PLACEHOLDER + stored_name(path)
    write_msgpack(aggregate.source, target / AGGREGATE, packed)


_EMPTY: Final[dict[str, Any]] = {
    "None": None,
    "Dict": {},
    "List": [],
    "Tuple": (),
    "NamedTuple": (),
}


def _to_be_restored(entry: Entry) -> Entry:
    """What is said of a leaf that has values: Orbax knows nothing that it could make of one to be skipped."""
    entry = {name: value for name, value in entry.items() if damaged_field(name) is None}
    if entry["value_type"] in EMPTY_TYPES or not entry.get("skip_deserialize"):
        return entry
    return {**entry, "skip_deserialize": False}


def _has_unstored(leaves: Iterable[KeptLeaf]) -> bool:
    arrays = (kept.leaf.array for kept in leaves)
    return any(array is not None and array.has_unstored for array in arrays)


def _metadata(item: BrokenItem, entries: dict[LeafPath, Entry], *, has_unstored: bool) -> bytes:
    tree = {
        entry_key(path): {"key_metadata": key_records(path), "value_metadata": entry}
        for path, entry in entries.items()
    }
    said = {
        name: value
        for name, value in item.structure.head.items()
        if name != "value_metadata_tree" and damaged_field(name) is None
    }
    head = {
        STORES_FILL_VALUES: not has_unstored,
        "custom_metadata": None,
        **said,
        "use_ocdbt": item.is_ocdbt,  # as the files are: it may say so of another save
        "use_zarr3": item.zarr == 3,
    }
    return json.dumps({TREE: tree, **head}).encode()
