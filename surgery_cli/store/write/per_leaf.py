"""Writes arrays as a directory for each leaf."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.durability import sync_directory
from surgery_cli.store.filesystem.links import Linker
from surgery_cli.store.filesystem.write_failures import write_errors
from surgery_cli.store.orbax.arrays import Window
from surgery_cli.store.orbax.contexts import new_context
from surgery_cli.store.orbax.stored_values import pieces
from surgery_cli.store.write.array_access import open_for_writing, read_block, store_block
from surgery_cli.store.write.arrays import Batch
from surgery_cli.store.write.early_reads import ReadsEarly
from surgery_cli.store.write.item_plan import ItemPlan, PlannedLeaf, Way
from surgery_cli.store.write.still_placed import check_folders
from surgery_cli.store.write.upload_buffer import buffer_for

if TYPE_CHECKING:
    import numpy as np
    import tensorstore as ts


class PerLeafWriter:
    """Arrays as directories: untouched ones are linked file by file; a rename is another name for the same files."""

    def __init__(self, target: Path, zarr: int, linker: Linker, *, buffered: bool = False) -> None:
        """``buffered``: see ``OcdbtWriter``."""
        self.target = target
        self.zarr = zarr
        self.linker = linker
        self.raw_bytes = 0
        self.buffer = buffer_for(target) if buffered else None
        self.early: ReadsEarly | None = None
        self._context = new_context() if self.buffer is None else self.buffer.context
        self._opened: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._begun: set[str] = set()
        """The names of arrays that are to be made by their first block."""
        self._goes_on = False
        self._folder = target
        """The last folder that was made."""

    def place(self, plan: ItemPlan) -> None:
        carried: list[tuple[Path, Path]] = []
        for leaf in plan.by_reference:
            if leaf.referred is not None:
                key, document = leaf.stored_document
                filesystem.write(self._place_of(leaf, key), document)
            for taken in leaf.taken:
                source = taken.store.directory / taken.array.name
                for old, new in zip(taken.array.keys, taken.to, strict=True):
                    carried.append((source / old, self._place_of(leaf, new)))
        self.linker.carry_all(carried)
        for leaf in plan.of(Way.RAW):
            for key, value in leaf.origin_store.stored_values(leaf.origin_array.name).items():
                filesystem.write(self._place_of(leaf, key), pieces(value))
                self.raw_bytes += len(value)

    def go_on(self, plan: ItemPlan) -> None:
        """What is by reference is there; an array whose first blocks do not hold is made anew."""
        check_folders(self.target, [leaf for leaf in plan.leaves if leaf.taken])
        self._goes_on = True

    def _place_of(self, leaf: PlannedLeaf, key: str) -> Path:
        """Where a new file goes; its folder is there."""
        target = self.target / leaf.name / key
        if target.parent != self._folder:
            filesystem.make_folders(target.parent)
            self._folder = target.parent
        return target

    @contextmanager
    def batch(self) -> Iterator[Batch]:
        """Writes are visible at once on a disk; there is no transaction over directories."""
        if self.buffer is not None:
            part = self.buffer.part()
            yield part
            with write_errors(self.target.name):
                part.send_arrays()
            return
        self._opened.clear()
        yield self
        self._opened.clear()

    def begin(self, leaf: PlannedLeaf) -> None:
        """Nothing stands there, as arrays that are written were not linked; but for what an earlier run began."""
        if leaf.referred is not None:
            return
        self._begun.add(leaf.name)
        if self._goes_on:
            filesystem.delete(self.target / leaf.name / leaf.stored_document[0])

    def settle(self, names: Collection[str]) -> None:
        """TensorStore sees to files and their folders, and not to the folders that it has made."""
        if isinstance(self.target, BucketPath):
            return
        for name in names:
            folder = self.target / name
            for prefix, _ in filesystem.below(folder):
                sync_directory(folder / prefix)
            for above in folder.relative_to(self.target).parents:
                sync_directory(self.target / above)

    def read_back(self, leaf: PlannedLeaf, window: Window) -> np.ndarray[Any, Any] | None:
        kvstore = filesystem.kvstore(self.target / leaf.name)
        return read_block(self.zarr, kvstore, leaf, self._context, window)

    def write(self, leaf: PlannedLeaf, window: Window, values: np.ndarray[Any, Any]) -> None:
        with self._lock:
            array = self._opened.get(leaf.name)
            if array is None:
                array = self._opened[leaf.name] = self._array(leaf)
        # without a transaction, it is on disk afterwards
        store_block(array, window, values, str(leaf.draft_path))

    def _array(self, leaf: PlannedLeaf) -> ts.TensorStore:
        kvstore = filesystem.kvstore(self.target / leaf.name)
        is_new = leaf.name in self._begun
        self._begun.discard(leaf.name)
        with write_errors(str(leaf.draft_path)):
            array: ts.TensorStore = open_for_writing(
                self.zarr, kvstore, leaf.document, self._context, create=is_new, may_exist=True
            )
        return array

    def merge(self, numbers: Iterable[int], elsewhere: Sequence[PlannedLeaf]) -> None:
        """All processes write into the same directories: no chunk belongs to two of them."""

    def finish(self) -> None:
        """Nothing to drop: what is not in the plan was not linked."""
