"""What writers of stored arrays have in common, whatever the layout."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from surgery_cli.store.orbax.arrays import Window
from surgery_cli.store.write.early_reads import ReadsEarly
from surgery_cli.store.write.item_plan import ItemPlan, PlannedLeaf
from surgery_cli.store.write.upload_buffer import UploadBuffer

if TYPE_CHECKING:
    import numpy as np


class Batch(Protocol):
    """Arrays that are written together; their bytes are held until the batch ends."""

    def begin(self, leaf: PlannedLeaf) -> None:
        """Take the place of what stands under an array's name; its first blocks come in this batch.

        Called before any of its blocks is written. Batches of one array must end in the order in which they came.
        """

    def write(self, leaf: PlannedLeaf, window: Window, values: np.ndarray[Any, Any]) -> None:
        """Write a block. Blocks of one array must cover whole stored chunks. May be called from threads."""


class ArrayWriter(Protocol):
    """Makes the arrays of one new item directory."""

    def place(self, plan: ItemPlan) -> None:
        """Everything that is taken by reference or raw."""

    def go_on(self, plan: ItemPlan) -> None:
        """In the place of ``place``: an earlier run has done that, and has perhaps written some blocks.

        Raises:
            WriteError: what it had put there is gone.
            CheckpointError: what it has written cannot be read.
        """

    def batch(self) -> Any:
        """A context manager that gives a ``Batch`` and commits it at its end."""

    def settle(self, names: Collection[str]) -> None:
        """See that what was committed of these arrays lasts, where that takes more than the commit."""

    def read_back(self, leaf: PlannedLeaf, window: Window) -> np.ndarray[Any, Any] | None:
        """A block that was committed, by an earlier run perhaps; None if it is not there, or does not decode."""

    def merge(self, numbers: Iterable[int], elsewhere: Sequence[PlannedLeaf]) -> None:
        """Refer to what other processes have written; ``elsewhere``: leaves of which this one writes no block."""

    def finish(self) -> None:
        """Drop what nothing refers to."""

    raw_bytes: int
    """Encoded bytes that were copied without decoding."""

    buffer: UploadBuffer | None
    """Through which all is written, where it goes to a bucket."""

    @property
    def early(self) -> ReadsEarly | None:
        """What reads back each batch after its commit, where it goes to a database or to files on a disk."""


class NoArrays:
    """For items without stored arrays."""

    raw_bytes = 0
    buffer: UploadBuffer | None = None
    early: ReadsEarly | None = None

    def place(self, plan: ItemPlan) -> None:
        """Nothing is stored."""

    def go_on(self, plan: ItemPlan) -> None:
        """Nothing is stored."""

    def batch(self) -> Any:
        return nullcontext()

    def settle(self, names: Collection[str]) -> None:
        """Nothing is stored."""

    def read_back(self, leaf: PlannedLeaf, window: Window) -> np.ndarray[Any, Any] | None:
        return None

    def merge(self, numbers: Iterable[int], elsewhere: Sequence[PlannedLeaf]) -> None:
        """Nothing is stored."""

    def finish(self) -> None:
        """Nothing was stored."""
