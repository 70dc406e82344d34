"""Writers for formats that are files: msgpack comes out as msgpack, what is only read as an Orbax directory."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from surgery_cli.draft.recipe import SOURCE
from surgery_cli.store import filesystem
from surgery_cli.store.files.msgpack_tree import PLACEHOLDER, MsgpackFile
from surgery_cli.store.files.msgpack_writing import Continued, Stored, in_kind, write_msgpack
from surgery_cli.store.filesystem.links import Linker
from surgery_cli.store.open.file_item import FileItem
from surgery_cli.store.open.item import PytreeItem
from surgery_cli.store.orbax.ocdbt import OcdbtStore
from surgery_cli.store.orbax.sidecars import METADATA, value_type
from surgery_cli.store.orbax.tree_metadata import entry_key, key_records
from surgery_cli.store.write.arrays import NoArrays
from surgery_cli.store.write.item_plan import ItemPlan, PlannedLeaf, Way
from surgery_cli.store.write.item_writer import ItemWriter, Produce
from surgery_cli.store.write.ocdbt import OcdbtWriter
from surgery_cli.store.write.t5x import array_spec
from surgery_cli.store.write.text_leaves import write_texts
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind

_EMPTIES: dict[str, Any] = {"None": None, "Dict": {}, "List": [], "Tuple": (), "NamedTuple": None}


class MsgpackWriter(ItemWriter):
    """A Flax msgpack file: untouched leaves are copied byte by byte."""

    def __init__(self, plan: ItemPlan, target: Path) -> None:
        super().__init__(plan, target, NoArrays())

    def begin(self) -> None:
        """Nothing is by reference: the file is written at the end."""

    def finish(self) -> None:
        assert isinstance(self.plan.item, FileItem)
        source: MsgpackFile = self.plan.item.content
        write_msgpack(source, self.target, packed_leaves(self.plan, self._packed, source))


def packed_leaves(
    plan: ItemPlan, produced: Mapping[LeafPath, Produce], source: MsgpackFile
) -> dict[Any, Any]:
    """For every leaf of a msgpack file: the bytes that stand in the source, a value, or a function that gives one."""
    found: dict[Any, Any] = {}
    for leaf in plan.leaves:
        home = _home(leaf, source)
        if leaf.path in produced:
            found[leaf.path] = _in_kind_of(leaf, produced[leaf.path], source)
        elif leaf.way is not Way.NONE:
            found[leaf.path] = _placeholder(leaf, source)
        elif leaf.origin_path is not None and _stands_in(source, leaf):
            found[leaf.path] = Stored(leaf.origin_path)
        elif leaf.spec.kind is LeafKind.EMPTY:
            found[leaf.path] = _EMPTIES[leaf.spec.empty]
        else:
            found[leaf.path] = partial(_from_elsewhere, leaf)
        if home is not None and not isinstance(found[leaf.path], Stored):
            found[leaf.path] = Continued(home, found[leaf.path])
    return found


def _home(leaf: PlannedLeaf, source: MsgpackFile) -> LeafPath | None:
    """Where the leaf that this one continues stood in ``source``: of what kind the containers above it are."""
    home = leaf.output.home
    if home is None or home.source != SOURCE:
        return None
    inside = LeafPath(home.path[len(leaf.draft_path) - len(leaf.path) :])
    return next((path for path in (home.path, inside) if path in source.tree), None)


def _stands_in(source: MsgpackFile, leaf: PlannedLeaf) -> bool:
    """True if the leaf's origin is packed in ``source``, and not in some other file or store."""
    origin = leaf.origin
    packed = origin.content if isinstance(origin, FileItem) else getattr(origin, "aggregate", None)
    return packed is source and leaf.origin_path in source.tree


def _from_elsewhere(leaf: PlannedLeaf) -> Any:
    """A value that another item holds, in the kind of leaf that it becomes."""
    assert leaf.origin is not None
    assert leaf.origin_path is not None
    return in_kind(leaf.origin.read(leaf.origin_path), leaf.spec)


def _in_kind_of(leaf: PlannedLeaf, produce: Produce, source: MsgpackFile) -> Produce:
    packed = source.scan.leaves.get(leaf.path)
    if leaf.origin_path is not None and _stands_in(source, leaf):
        packed = source.scan.leaves[leaf.origin_path]
    code = packed.code if packed is not None else None
    return lambda: in_kind(produce(), leaf.spec, code)


def _placeholder(leaf: PlannedLeaf, source: MsgpackFile) -> Any:
    """What stands for an array stored elsewhere: as it was, if it still says the right name."""
    if source.t5x_version is not None:
        return array_spec(leaf, source)
    text = f"{PLACEHOLDER}{leaf.name}"
    if leaf.path in source.tree and source.placeholders.get(leaf.path) == leaf.name:
        return Stored(leaf.path)
    return text


def write_aggregate(plan: ItemPlan, produced: Mapping[LeafPath, Produce], target: Path) -> None:
    """Rewrite Orbax's ``checkpoint`` file if a value in it or the structure has changed."""
    item = plan.item
    assert isinstance(item, PytreeItem)
    assert item.aggregate is not None
    leaves = packed_leaves(plan, produced, item.aggregate)
    stays = all(isinstance(value, Stored) and value.path == path for path, value in leaves.items())
    if stays and list(leaves) == list(item.aggregate.tree):
        return
    filesystem.delete(target)
    write_msgpack(item.aggregate, target, leaves)


CONVERTED_LAYOUT = "ocdbt zarr2"
"""What comes of formats that are only read: what ``PyTreeCheckpointer`` writes, and every release since 0.5 reads."""

_HANDLER = "orbax.checkpoint._src.handlers.pytree_checkpoint_handler.PyTreeCheckpointHandler"


class ConvertingWriter(ItemWriter):
    """An Orbax directory made from a format that is only read."""

    def __init__(
        self, plan: ItemPlan, target: Path, linker: Linker, *, buffered: bool = False
    ) -> None:
        store = OcdbtStore(target, 2)
        arrays = OcdbtWriter(target, store, linker, compact=True, buffered=buffered)
        super().__init__(plan, target, arrays)

    def finish(self) -> None:
        super().finish()
        assert not self._packed, "no value has a place outside of arrays"
        entries = {
            entry_key(leaf.path): {
                "key_metadata": key_records(leaf.path),
                "value_metadata": {
                    "value_type": value_type(leaf.spec),
                    "skip_deserialize": leaf.spec.kind is LeafKind.EMPTY,
                },
            }
            for leaf in self.plan.leaves
        }
        document = {
            "tree_metadata": entries,
            "use_ocdbt": True,
            "use_zarr3": False,
            "store_array_data_equal_to_fill_value": True,
            "custom_metadata": None,
        }
        filesystem.write(self.target / METADATA, json.dumps(document).encode())
        write_texts(self.plan, self.target)
        nanoseconds = time.time_ns()
        step = {
            "item_handlers": _HANDLER,
            "metrics": {},
            "performance_metrics": {},
            "init_timestamp_nsecs": nanoseconds,
            "commit_timestamp_nsecs": nanoseconds,
            "custom_metadata": {},
        }
        filesystem.write(self.target / "_CHECKPOINT_METADATA", json.dumps(step).encode())
