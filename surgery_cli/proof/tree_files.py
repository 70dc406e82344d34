"""The files beside the arrays of a tree, held against each other and against what Orbax writes there."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from surgery_cli.proof.aggregate_file import aggregate_faults
from surgery_cli.proof.damaged_text import json_object, resembled, resembles_any
from surgery_cli.proof.sharding_file import sharding_faults
from surgery_cli.proof.shards import shard_faults
from surgery_cli.store import filesystem
from surgery_cli.store.open.contradictions import contradictions
from surgery_cli.store.open.item import PytreeItem
from surgery_cli.store.orbax.btree_nodes import MANIFEST
from surgery_cli.store.orbax.ocdbt import OcdbtStore
from surgery_cli.store.orbax.process_databases import of_another_save
from surgery_cli.store.orbax.sidecars import (
    ARRAY_METADATAS,
    EMPTY_TYPES,
    METADATA,
    PROCESS_FILE,
    SHARDING,
    TREE,
    VALUE_TYPES,
    is_process_file,
)
from surgery_cli.store.orbax.tree_metadata import entry_key
from surgery_cli.store.orbax.zarr import ArrayDocument
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind

Fault = tuple[str, str]
"""A file, relative to a folder, and what is wrong with it."""

NO_METADATA: Final[Fault] = (
    METADATA,
    "it is not there: arrays' names alone tell what the tree was",
)
# orbax-checkpoint: the fields that releases up to 0.12 write, of the item and of the step.
_ITEM_FIELDS: Final = frozenset(
    {
        TREE,
        "use_ocdbt",
        "use_zarr3",
        "store_array_data_equal_to_fill_value",
        "custom_metadata",
        "value_metadata_tree",
    }
)
_ENTRY_FIELDS: Final = frozenset({"value_type", "skip_deserialize", "write_shape"})
_VALUE_TYPES: Final = EMPTY_TYPES | frozenset(VALUE_TYPES.values())
_KEY_IMPLS: Final = frozenset({"threefry2x32", "rbg", "unsafe_rbg", "fry", "urbg"})


def tree_faults(item: PytreeItem) -> Iterator[Fault]:
    """What is wrong with the files of a tree, by path from its directory."""
    yield from _of_tree(item)
    yield from aggregate_faults(item)
    yield from _of_arrays(item)
    yield from shard_faults(item)
    yield from sharding_faults(item)
    yield from _of_array_metadatas(item)
    yield from _of_databases(item)


def _of_tree(item: PytreeItem) -> Iterator[Fault]:
    """``_METADATA`` says each path twice, and each field under a name of its own."""
    document, fault = json_object(item.directory / METADATA)
    if fault:
        yield METADATA, fault
    elif document is None and item.is_inferred and _had_metadata(item):
        yield NO_METADATA
    for why in contradictions(item):
        yield METADATA, why
    if document is None:
        return
    for why in document_faults(document):
        yield METADATA, why


def document_faults(document: dict[str, Any]) -> Iterator[str]:
    """What is wrong with ``_METADATA`` that can be read, by itself."""
    for name in document:
        if (known := damaged_field(name)) is not None:
            yield f"a field is called '{name}': '{known}', damaged"
    tree = document.get(TREE)
    for key, entry in tree.items() if isinstance(tree, dict) else ():
        if isinstance(entry, dict):
            yield from _entry_faults(key, entry)


def damaged_field(name: str) -> str | None:
    """The field of ``_METADATA``, or of what it says of a leaf, that a name was before it was damaged, if it was."""
    return resembled(name, _ITEM_FIELDS) or resembled(name, _ENTRY_FIELDS)


def _of_databases(item: PytreeItem) -> Iterator[Fault]:
    """Values of another save beside those that are restored: which of the two were meant, nothing tells."""
    if isinstance(item.store, OcdbtStore):
        for file in of_another_save(item.store):
            yield file, f"it leads to other values than `{MANIFEST}`: files of two saves are mixed"


def has_sidecars(directory: Path) -> bool:
    """True if files stand there that Orbax writes beside ``_METADATA`` or, before there was that, an aggregate."""
    return any(filesystem.exists(directory / name) for name in (SHARDING, ARRAY_METADATAS))


def _had_metadata(item: PytreeItem) -> bool:
    """True if something stands there that Orbax writes only beside ``_METADATA`` or an aggregate: arrays with names."""
    if item.store is not None and any(item.store.arrays):
        return True
    return filesystem.exists(item.directory / MANIFEST) or has_sidecars(item.directory)


def _entry_faults(key: str, entry: dict[str, Any]) -> Iterator[str]:
    records = entry.get("key_metadata")
    if not isinstance(records, list) or not all(isinstance(one, dict) for one in records):
        yield f"{key} has no list of keys (`key_metadata`)"
        return
    keys = [record.get("key") for record in records]
    if key != entry_key(LeafPath([str(one) for one in keys])):
        yield f"an entry is called {key}, and its keys are {keys}"
    value = entry.get("value_metadata")
    if not isinstance(value, dict):
        return
    if (known := resembled(str(value.get("value_type")), _VALUE_TYPES)) is not None:
        yield f"{key} is of the type '{value['value_type']}': '{known}', damaged"
    if not isinstance(value.get("skip_deserialize", False), bool):
        yield f"{key} does not say whether it is skipped (`skip_deserialize`)"
    for name in value:
        if (known := resembled(name, _ENTRY_FIELDS)) is not None:
            yield f"{key} has a field '{name}': '{known}', damaged"


def _of_arrays(item: PytreeItem) -> Iterator[Fault]:
    for path, leaf in item.leaves.items():
        if leaf.array is not None:
            is_key = leaf.spec.kind is LeafKind.KEY
            document = leaf.array.document
            if why := document_fault(document, is_key=is_key) or beyond_fault(
                document, leaf.array.keys
            ):
                yield leaf.array.name, f"'{path}': {why}"


def document_fault(document: ArrayDocument, *, is_key: bool) -> str:
    """What Orbax never writes into the document of an array, and would read as something else; '' if nothing is."""
    pairs = zip(document.write_shape, document.shape, strict=True)
    if any(write > size for write, size in pairs if size):
        return f"its shape {list(document.shape)} is smaller than one of its chunks, {list(document.write_shape)}"
    if is_key and document.dtype != "uint32":
        return f"it is a random key, and stored as {document.dtype}"
    if document.is_big_endian:
        return "it is stored with its bytes in the other order"
    if document.is_transposed:
        return "its elements are not stored in C order, and Orbax writes them in no other"
    return ""


def beyond_fault(document: ArrayDocument, keys: Collection[str]) -> str:
    """What is stored like chunks of the array and lies outside of its shape: it was larger when they were written."""
    if len(keys) <= document.chunk_count:
        return ""
    beyond = [key for key in keys if document.is_like_chunk(key) and not document.is_chunk(key)]
    shape = list(document.shape)
    return f"chunks lie beyond its shape {shape} (first: '{min(beyond)}')" if beyond else ""


def _of_array_metadatas(item: PytreeItem) -> Iterator[Fault]:
    """How each array is cut, and what a typed key is; the arrays' own documents say the first again."""
    arrays = [leaf.array for leaf in item.leaves.values() if leaf.array is not None]
    documents = {array.name: array.document for array in arrays}
    for entry in filesystem.entries_if_any(item.directory / ARRAY_METADATAS):
        if not is_process_file(entry.name):
            why = f"Orbax refuses names there that are not '{PROCESS_FILE}' and a number"
            yield f"{ARRAY_METADATAS}/{entry.name}", why
    for name in item.sidecars.array_metadata_files:
        file = f"{ARRAY_METADATAS}/{name}"
        document, fault = json_object(item.directory / file)
        if fault:
            yield file, fault
        if document is None:
            continue
        entries = document.get("array_metadatas")
        if not isinstance(entries, list):
            yield file, "it has no list `array_metadatas`"
            continue
        for entry in entries:
            found = entry.get("array_metadata") if isinstance(entry, dict) else None
            if fault := array_entry_fault(found, documents):
                yield file, fault


def array_entry_fault(found: Any, documents: Mapping[str, ArrayDocument]) -> str:
    """What is wrong with what ``array_metadatas`` says of an array, ``documents`` being by name; '' if nothing is."""
    name = found.get("param_name") if isinstance(found, dict) else None
    if not isinstance(name, str):
        return "an entry names no array (`array_metadata`, `param_name`)"
    if name not in documents:
        return f"an entry is called '{name}', which is no array here"
    array = documents[name]
    for field in ("write_shape", "chunk_shape"):
        shape = found.get(field)
        if not isinstance(shape, list) or len(shape) != len(array.shape):
            return f"'{name}' has the {field} {shape} there, and the shape {list(array.shape)}"
        if 0 in array.shape and 0 not in shape:
            return f"'{name}' has the {field} {shape} there, and no elements where it is stored"
    if not array.can_be_of(found["write_shape"]):
        return f"'{name}' was written in blocks of {found['write_shape']} there, and its shape is {list(array.shape)}"
    chunk = found["chunk_shape"]  # what a process wrote at once may be several of them
    if chunk != list(array.chunk_shape):
        return f"'{name}' has chunks of {chunk} there, and of {list(array.chunk_shape)} where it is stored"
    extra = found.get("ext_metadata")
    if any(resembled(field, {"ext_metadata"}) is not None for field in found):
        return f"'{name}' has damaged fields: {', '.join(found)}"
    if extra is None:
        return ""
    if not isinstance(extra, dict) or resembles_any(extra, {"random_key_impl"}):
        return f"'{name}' has the `ext_metadata` {extra}"
    known = resembled(str(extra.get("random_key_impl")), _KEY_IMPLS)
    if known is not None:
        return (
            f"'{name}' is a random key of the kind '{extra['random_key_impl']}': '{known}', damaged"
        )
    return ""
