"""One new item under construction, whatever its format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery_cli.draft.kernel import Window
from surgery_cli.store import filesystem
from surgery_cli.store.write.arrays import ArrayWriter, Batch
from surgery_cli.store.write.early_reads import ReadsEarly
from surgery_cli.store.write.item_plan import ItemPlan, PlannedLeaf
from surgery_cli.store.write.upload_buffer import UploadBuffer
from surgery_cli.store.write.writing_order import together
from surgery_cli.tree.paths import LeafPath

if TYPE_CHECKING:
    import numpy as np

Produce = Callable[[], Any]
"""Computes a leaf's values when they are written."""


class ItemWriter:
    """A directory in which arrays are placed and written, and small files at the end."""

    def __init__(self, plan: ItemPlan, target: Path, arrays: ArrayWriter) -> None:
        self.plan = plan
        self.target = target
        self._arrays = arrays
        self._packed: dict[LeafPath, Produce] = {}

    def begin(self) -> None:
        """Place by reference."""
        filesystem.make_folder(self.target)
        self._arrays.place(self.plan)

    def go_on(self, raw_bytes: int) -> None:
        """In the place of ``begin``, where an earlier run has done that; see ``ArrayWriter.go_on``."""
        self._arrays.raw_bytes = raw_bytes
        self._arrays.go_on(self.plan)

    @property
    def order(self) -> Sequence[PlannedLeaf]:
        """The leaves of which values are written, one after the other."""
        return together(self.plan.computed)

    @property
    def buffer(self) -> UploadBuffer | None:
        """Through which arrays are written, where they go to a bucket."""
        return self._arrays.buffer

    @property
    def early(self) -> ReadsEarly | None:
        """What reads back each batch after its commit; see ``ArrayWriter``."""
        return self._arrays.early

    def batch(self) -> AbstractContextManager[Batch]:
        """A batch of arrays that are written together."""
        found: AbstractContextManager[Batch] = self._arrays.batch()
        return found

    def settle(self, leaves: Iterable[PlannedLeaf]) -> None:
        """See that what was committed of these leaves lasts."""
        self._arrays.settle({leaf.name for leaf in leaves})

    def read_back(self, leaf: PlannedLeaf, window: Window) -> np.ndarray[Any, Any] | None:
        """A block of an array that was committed; None if it is not there, or damaged."""
        return self._arrays.read_back(leaf, window)

    def keep_value(self, leaf: PlannedLeaf, produce: Produce) -> None:
        """Take what computes a value that is packed into a file; it is called when the file is written."""
        self._packed[leaf.path] = produce

    @property
    def is_packing(self) -> bool:
        """True if values are still to be computed, when a file is written."""
        return bool(self._packed)

    def merge(self, numbers: Iterable[int], elsewhere: Sequence[PlannedLeaf]) -> None:
        """Take in what other processes have written: see ``ArrayWriter.merge``."""
        self._arrays.merge(numbers, elsewhere)

    def finish(self) -> None:
        """Drop what nothing refers to, and write the small files: where nothing is renamed, they make it whole."""
        self._arrays.finish()

    def abandon(self) -> None:
        """Leave nothing open or under way: the run has failed, and what was built is about to be removed."""

    @property
    def raw_bytes(self) -> int:
        return self._arrays.raw_bytes
