"""What writers of stored arrays have in common, whatever the layout."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from surgery_cli.store.filesystem.write_failures import write_errors
from surgery_cli.store.orbax.arrays import Window
from surgery_cli.store.orbax.contexts import VALUES_POOL
from surgery_cli.store.write.item_plan import ItemPlan, PlannedLeaf

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

    def batch(self) -> Any:
        """A context manager that gives a ``Batch`` and commits it at its end."""

    def finish(self) -> None:
        """Drop what nothing refers to."""

    @property
    def raw_bytes(self) -> int:
        """Encoded bytes that were copied without decoding."""


class NoArrays:
    """For items without stored arrays."""

    raw_bytes = 0

    def place(self, plan: ItemPlan) -> None:
        """Nothing is stored."""

    def batch(self) -> Any:
        return nullcontext()

    def finish(self) -> None:
        """Nothing was stored."""


def open_for_writing(
    zarr: int,
    kvstore: dict[str, Any],
    document: dict[str, Any] | None,
    context: Any,
    *,
    create: bool,
    transaction: Any = None,
) -> Any:
    """An array to write to, made with ``document`` if it is new."""
    import tensorstore as ts

    spec: dict[str, Any] = {
        "driver": "zarr" if zarr == 2 else "zarr3",
        "cache_pool": VALUES_POOL,
        "kvstore": kvstore,
        # without it all-zero chunks are not stored, and Orbax refuses to restore
        "store_data_equal_to_fill_value": True,
    }
    options: dict[str, Any] = {"transaction": transaction} if transaction is not None else {}
    if document is not None:
        spec["metadata"] = document
        # an array of several transactions: the one that makes it may still be on its way to the disk
        options["assume_metadata"] = not create
    return ts.open(spec, open=not create, create=create, context=context, **options).result()


def store_block(array: Any, window: Window, values: np.ndarray[Any, Any]) -> None:
    """Write a block. TensorStore refers to ``values`` until they are committed; they must not change."""
    with write_errors(array.kvstore.path if array.kvstore else "an array"):
        array[window].write(values, can_reference_source_data_indefinitely=True).result()
