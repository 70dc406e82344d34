"""Builds one new item: sidecars copied and rewritten, arrays placed and written, inline values packed."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Protocol

from surgery_cli.store.array_writing import ArrayWriter, Batch
from surgery_cli.store.file_writers import (
    ConvertingWriter,
    MsgpackWriter,
    Produce,
    write_aggregate,
)
from surgery_cli.store.item import FileItem, PytreeItem
from surgery_cli.store.item_plan import ItemPlan, PlannedLeaf
from surgery_cli.store.links import Linker
from surgery_cli.store.ocdbt import OcdbtStore
from surgery_cli.store.ocdbt_writer import OcdbtWriter
from surgery_cli.store.per_leaf import PerLeafStore
from surgery_cli.store.per_leaf_writer import PerLeafWriter
from surgery_cli.store.sidecar_edits import write_sidecars
from surgery_cli.store.sidecars import AGGREGATE


class ItemWriter(Protocol):
    """One new item under construction."""

    @property
    def plan(self) -> ItemPlan: ...
    def begin(self) -> None:
        """Carry along and place by reference."""

    def batch(self) -> AbstractContextManager[Batch]:
        """A batch of arrays that are written together."""

    def keep_value(self, leaf: PlannedLeaf, produce: Produce) -> None:
        """Take what computes a value that is packed into a file; it is called when the file is written."""

    def finish(self) -> None:
        """Write the sidecars, drop what nothing refers to."""

    @property
    def raw_bytes(self) -> int: ...


def open_writer(plan: ItemPlan, target: Path, linker: Linker, *, compact: bool) -> ItemWriter:
    """The writer for an item's format."""
    if isinstance(plan.item, PytreeItem):
        return PytreeWriter(plan, target, linker, compact=compact)
    assert isinstance(plan.item, FileItem)
    if plan.item.layout == "flax msgpack":
        return MsgpackWriter(plan, target)
    return ConvertingWriter(plan, target, linker)


class PytreeWriter:
    """An Orbax item directory, in the layout of its source."""

    def __init__(self, plan: ItemPlan, target: Path, linker: Linker, *, compact: bool) -> None:
        self.plan = plan
        self.target = target
        self.linker = linker
        assert isinstance(plan.item, PytreeItem)
        self.item = plan.item
        self._arrays = _array_writer(self.item, target, linker, compact=compact)
        self._inline: dict[Any, Produce] = {}

    def begin(self) -> None:
        self.target.mkdir()
        self._copy_sidecars()
        self._arrays.place(self.plan)

    def _copy_sidecars(self) -> None:
        """Everything that is not array data: Orbax's small files, and files that are foreign to it."""
        for path in small_files(self.item):
            self.linker.copy_tree(path, self.target / path.name)

    def batch(self) -> AbstractContextManager[Batch]:
        found: AbstractContextManager[Batch] = self._arrays.batch()
        return found

    def keep_value(self, leaf: PlannedLeaf, produce: Produce) -> None:
        self._inline[leaf.path] = produce

    def finish(self) -> None:
        write_sidecars(self.plan, self.target)
        if self.item.aggregate is not None:
            write_aggregate(self.plan, self._inline, self.target / AGGREGATE)
        self._arrays.finish()

    @property
    def raw_bytes(self) -> int:
        return self._arrays.raw_bytes


class NoArrays:
    """For items without stored arrays."""

    raw_bytes = 0

    def place(self, plan: ItemPlan) -> None:
        """Nothing is stored."""

    def batch(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def finish(self) -> None:
        """Nothing was stored."""


def _array_writer(item: PytreeItem, target: Path, linker: Linker, *, compact: bool) -> ArrayWriter:
    store = item.store
    if isinstance(store, PerLeafStore):
        return PerLeafWriter(target, store.zarr, linker)
    if isinstance(store, OcdbtStore):
        return OcdbtWriter(target, store, linker, compact=compact)
    if item.aggregate is not None:
        return NoArrays()
    fresh = OcdbtStore(item.directory, 3 if item.sidecars.use_zarr3 else 2)
    return OcdbtWriter(target, fresh, linker, compact=True)


def small_files(item: PytreeItem) -> list[Path]:
    """What stands in an item's directory beside array data: Orbax's sidecars, and what is foreign to it."""
    data = _data_names(item)
    return [
        Path(entry.path)
        for entry in sorted(os.scandir(item.directory), key=lambda e: e.name)
        if entry.name not in data and not entry.name.startswith("ocdbt.")
    ]


def _data_names(item: PytreeItem) -> set[str]:
    """Top-level names that hold array data; writers make these themselves."""
    store = item.store
    if isinstance(store, OcdbtStore):
        return {"manifest.ocdbt", "d", "ocdbt_data", "ocdbt_meta"}
    return {name.split("/", 1)[0] for name in store.arrays} if store is not None else set()
