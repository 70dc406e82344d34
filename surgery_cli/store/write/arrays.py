"""What writers of stored arrays have in common, whatever the layout."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
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

    def go_on(self) -> None:
        """In the place of ``place``: an earlier run has done that, and has perhaps written some blocks."""

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


class NoArrays:
    """For items without stored arrays."""

    raw_bytes = 0

    def place(self, plan: ItemPlan) -> None:
        """Nothing is stored."""

    def go_on(self) -> None:
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


def open_for_writing(
    zarr: int,
    kvstore: dict[str, Any],
    document: dict[str, Any] | None,
    context: Any,
    *,
    create: bool,
    may_exist: bool = False,
    transaction: Any = None,
) -> Any:
    """An array to write to, made with ``document`` if it is new; ``may_exist``: another process may have made it."""
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
    return ts.open(
        spec, open=may_exist or not create, create=create, context=context, **options
    ).result()


def read_block(
    zarr: int, kvstore: dict[str, Any], leaf: PlannedLeaf, context: Any, window: Window
) -> np.ndarray[Any, Any] | None:
    """A block of an array that is being built; None if it, or the array, is not there, or damaged."""
    import numpy as np
    import tensorstore as ts

    spec = {
        "driver": "zarr" if zarr == 2 else "zarr3",
        "cache_pool": VALUES_POOL,
        "kvstore": kvstore,
        "metadata": leaf.document,
        "fill_missing_data_reads": False,
    }
    try:
        array = ts.open(spec, open=True, read=True, context=context).result()
        return np.asarray(array[window].read(order="C").result())
    except (ValueError, OSError):
        return None


def store_block(array: Any, window: Window, values: np.ndarray[Any, Any]) -> None:
    """Write a block. TensorStore refers to ``values`` until they are committed; they must not change."""
    with write_errors(array.kvstore.path if array.kvstore else "an array"):
        array[window].write(values, can_reference_source_data_indefinitely=True).result()
