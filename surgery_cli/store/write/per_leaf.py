"""Writes arrays as a directory for each leaf."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.links import Linker
from surgery_cli.store.filesystem.write_failures import write_errors
from surgery_cli.store.orbax.arrays import Window
from surgery_cli.store.orbax.contexts import new_context
from surgery_cli.store.orbax.stored_values import pieces
from surgery_cli.store.orbax.zarr import DOCUMENT_NAMES
from surgery_cli.store.write.arrays import open_for_writing
from surgery_cli.store.write.item_plan import ItemPlan, PlannedLeaf, Way

if TYPE_CHECKING:
    import numpy as np
    import tensorstore as ts


class PerLeafWriter:
    """Arrays as directories: untouched ones are linked file by file; a rename is another name for the same files."""

    def __init__(self, target: Path, zarr: int, linker: Linker) -> None:
        self.target = target
        self.zarr = zarr
        self.linker = linker
        self.raw_bytes = 0
        self._context = new_context()
        self._opened: dict[str, Any] = {}
        self._lock = threading.Lock()
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

    def _place_of(self, leaf: PlannedLeaf, key: str) -> Path:
        """Where a new file goes; its folder is there."""
        target = self.target / leaf.name / key
        if target.parent != self._folder:
            filesystem.make_folders(target.parent)
            self._folder = target.parent
        return target

    @contextmanager
    def batch(self) -> Iterator[PerLeafWriter]:
        """Writes are visible at once; there is no transaction over directories."""
        self._opened.clear()
        yield self
        self._opened.clear()

    def begin(self, leaf: PlannedLeaf) -> None:
        """Nothing stands there: arrays that are written were not linked."""

    def write(self, leaf: PlannedLeaf, window: Window, values: np.ndarray[Any, Any]) -> None:
        with self._lock:
            array = self._opened.get(leaf.name)
            if array is None:
                array = self._opened[leaf.name] = self._array(leaf)
        with write_errors(str(leaf.draft_path)):  # without a transaction, it is on disk afterwards
            array[window].write(values, can_reference_source_data_indefinitely=True).result()

    def _array(self, leaf: PlannedLeaf) -> ts.TensorStore:
        kvstore = filesystem.kvstore(self.target / leaf.name)
        filesystem.forget(self.target / leaf.name)
        exists = filesystem.exists(self.target / leaf.name / DOCUMENT_NAMES[self.zarr])
        with write_errors(str(leaf.draft_path)):
            array: ts.TensorStore = open_for_writing(
                self.zarr, kvstore, leaf.document, self._context, create=not exists
            )
        return array

    def finish(self) -> None:
        """Nothing to drop: what is not in the plan was not linked."""
