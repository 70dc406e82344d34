"""Rewriting an item's sidecars for a new tree; files that need no change are copied as they are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from surgery_cli.errors import CheckpointError
from surgery_cli.inputs.json_decoding import decode_json
from surgery_cli.store.filesystem.links import Linker
from surgery_cli.store.filesystem.small_files import write_together
from surgery_cli.store.open.contradictions import contradictions
from surgery_cli.store.open.item import PytreeItem
from surgery_cli.store.orbax.rich_types import rewritten_tree
from surgery_cli.store.orbax.sidecars import (
    ARRAY_METADATAS,
    METADATA,
    SHARDING,
    STRINGS,
    TREE,
    Entry,
    value_type,
)
from surgery_cli.store.orbax.tree_metadata import entry_key, key_records
from surgery_cli.store.write.item_plan import ItemPlan, PlannedLeaf, Way
from surgery_cli.store.write.shardings import device_arrays, keeps_sharding, shardings
from surgery_cli.store.write.text_leaves import write_texts
from surgery_cli.tree.paths import stored_name
from surgery_cli.tree.specs import LeafKind


def refuse_damaged_sidecars(plan: ItemPlan) -> None:
    """Refuse an edit of an item whose small files are damaged, unless they can come along as they are.

    Raises:
        CheckpointError: the edit would have to write one anew, or Orbax could not restore the result as it is.
    """
    item = plan.item
    if not isinstance(item, PytreeItem):
        return
    for file, why in item.sidecars.damaged.items():
        path = item.directory / file
        lost = "restores only to shardings that it is given"
        if file != SHARDING:
            lost = "restores typed PRNG keys as plain uint32, and all else as it is"
        elif not is_rewritten(item, plan):
            continue
        raise CheckpointError(
            f"'{path}' is damaged, and a new checkpoint needs it",
            why=why,
            fix="copy the file again from where it was whole; or move it away, and Orbax " + lost,
        )
    for why in contradictions(item):
        raise CheckpointError(
            f"'{item.directory / METADATA}' is not that of the arrays beside it: Orbax could not restore the result",
            why=why,
            fix="copy the file again from where it was whole",
        )


def is_rewritten(item: PytreeItem, plan: ItemPlan) -> bool:
    """True if the small files must say anything else than before."""
    paths = {leaf.path for leaf in plan.leaves}
    is_changed = any(not _stands_as_it_was(item, plan, leaf) for leaf in plan.leaves)
    return is_changed or any(path not in paths for path in item.tree)


def write_sidecars(plan: ItemPlan, target: Path, linker: Linker) -> None:
    """Write what the new tree needs of ``_METADATA``, ``_sharding``, ``array_metadatas`` and ``_strings.json``.

    The target already holds copies of the source's files, by ``linker``; those that stay true are left alone.
    """
    item = plan.item
    assert isinstance(item, PytreeItem)
    if not is_rewritten(item, plan):
        return
    made = (_metadata(item, plan), shardings(plan), _array_metadatas(item, plan))
    write_together({target / file: content for files in made for file, content in files})
    _write_strings(item, plan, target, linker)


def _stands_as_it_was(item: PytreeItem, plan: ItemPlan, leaf: PlannedLeaf) -> bool:
    """True if no sidecar says anything else of the leaf than before."""
    old = item.tree.get(leaf.path)
    if old is None or leaf.output.is_resharded or not old.agrees_with(leaf.spec):
        return False
    if leaf.way is Way.GRAFT or leaf.way is Way.RAW or leaf.way is Way.MOVE:
        return False
    if leaf.spec.kind is LeafKind.STRING:
        return leaf.origin is item and leaf.origin_path == leaf.path
    is_as_stored = leaf.document is None or write_shape(leaf) == old.write_shape
    return is_as_stored and (leaf.way is Way.KEEP or keeps_sharding(plan, leaf))


def write_shape(leaf: PlannedLeaf) -> tuple[int, ...] | None:
    """The shape of what is stored whole, as the new sidecars must say it; None for what goes into a file in C order."""
    if leaf.document is None and leaf.way is Way.ENCODE:
        return leaf.spec.write_shape
    if leaf.document is None:
        return leaf.origin_array.document.write_shape if leaf.way is not Way.NONE else None
    if leaf.document["zarr_format"] == 2:
        return tuple(leaf.document["chunks"])
    return tuple(leaf.document["chunk_grid"]["configuration"]["chunk_shape"])


def _chunk_shape(leaf: PlannedLeaf) -> tuple[int, ...] | None:
    if leaf.document is None:
        return leaf.origin_array.document.chunk_shape
    if leaf.document["zarr_format"] == 3:
        for codec in leaf.document["codecs"]:
            if codec["name"] == "sharding_indexed":
                return tuple(codec["configuration"]["chunk_shape"])
    return write_shape(leaf)


def _metadata(item: PytreeItem, plan: ItemPlan) -> Iterator[tuple[str, bytes]]:
    if item.sidecars.metadata is None:
        return
    entries = {entry_key(leaf.path): _entry(item, leaf) for leaf in plan.leaves}
    document = {TREE: entries, **item.sidecars.metadata}
    if isinstance(document.get("value_metadata_tree"), str):
        values = {
            leaf.path: entries[entry_key(leaf.path)]["value_metadata"] for leaf in plan.leaves
        }
        origins = {
            leaf.path: leaf.origin_path
            for leaf in plan.leaves
            if leaf.origin is item and leaf.origin_path is not None
        }
        old = decode_json(document["value_metadata_tree"])
        document["value_metadata_tree"] = json.dumps(rewritten_tree(old, values, origins))
    yield METADATA, json.dumps(document).encode()


def _entry(item: PytreeItem, leaf: PlannedLeaf) -> Entry:
    """A leaf's entry: its old one where it has one (unknown fields stay), made anew else."""
    old = None
    if leaf.origin is item and leaf.origin_path is not None:
        old = (item.sidecars.values or {}).get(leaf.origin_path)
    if old is None:
        old = (item.sidecars.values or {}).get(leaf.path)
    value: Entry = dict(old) if old else {"skip_deserialize": False}
    was = value.get("value_type")
    spec = leaf.spec
    value["value_type"] = value_type(spec)
    if value["value_type"] != was or spec.kind is LeafKind.EMPTY:
        value["skip_deserialize"] = spec.kind is LeafKind.EMPTY
    shape = write_shape(leaf) if leaf.way is not Way.NONE else None
    states_shape = "write_shape" in value or (old is None and item.sidecars.states_write_shapes)
    if shape is not None and spec.kind in (LeafKind.ARRAY, LeafKind.KEY) and states_shape:
        value["write_shape"] = list(shape)
    elif shape is None or spec.kind not in (LeafKind.ARRAY, LeafKind.KEY):
        value.pop("write_shape", None)
    return {"key_metadata": key_records(leaf.path), "value_metadata": value}


def _array_metadatas(item: PytreeItem, plan: ItemPlan) -> Iterator[tuple[str, bytes]]:
    documents = item.sidecars.array_metadatas
    leaves = device_arrays(plan.leaves)
    has_keys = any(leaf.spec.kind is LeafKind.KEY for leaf in leaves)
    if not documents:
        if not has_keys:
            return
        documents = {"process_0": {"array_metadatas": []}}
    first = next(iter(documents))
    listed = {
        file: {e["array_metadata"]["param_name"] for e in document.get("array_metadatas", [])}
        for file, document in documents.items()
    }
    rewritten: dict[str, list[Entry]] = {file: [] for file in documents}
    for leaf in leaves:
        old_name = (
            stored_name(leaf.origin_path) if leaf.origin is item and leaf.origin_path else leaf.name
        )
        holders = [file for file in documents if old_name in listed[file]] or [first]
        entry = {"array_metadata": _array_entry(item, leaf, old_name)}
        for file in holders:
            rewritten[file].append(entry)
    for file, entries in rewritten.items():
        document = {**documents[file], "array_metadatas": entries}
        yield f"{ARRAY_METADATAS}/{file}", json.dumps(document).encode()


def _array_entry(item: PytreeItem, leaf: PlannedLeaf, old_name: str) -> Entry:
    old = item.sidecars.array_entries.get(old_name) or {}
    shape = write_shape(leaf)
    assert shape is not None
    chunks = _chunk_shape(leaf) or shape
    extension = dict(old.get("ext_metadata") or {})
    extension.pop("random_key_impl", None)
    if leaf.spec.key_impl is not None:
        extension["random_key_impl"] = leaf.spec.key_impl
    return {
        **old,
        "param_name": leaf.name,
        "write_shape": list(shape),
        "chunk_shape": list(chunks),
        "ext_metadata": extension or None,
    }


def _write_strings(item: PytreeItem, plan: ItemPlan, target: Path, linker: Linker) -> None:
    if not write_texts(plan, target) and item.sidecars.strings is not None:
        linker.drop(target / STRINGS)
