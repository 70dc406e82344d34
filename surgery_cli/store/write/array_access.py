"""Opens arrays that are written, and writes and reads blocks of them, whatever the layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from surgery_cli.store.filesystem.write_failures import write_errors
from surgery_cli.store.orbax.arrays import Window
from surgery_cli.store.orbax.contexts import VALUES_POOL
from surgery_cli.store.orbax.zarr import DRIVERS
from surgery_cli.store.write.item_plan import PlannedLeaf

if TYPE_CHECKING:
    import numpy as np

UNREADABLE: Final = (ValueError, OSError)
"""What TensorStore raises of what is not there, or damaged."""


def open_for_writing(
    zarr: int,
    kvstore: Any,
    document: dict[str, Any] | None,
    context: Any,
    *,
    create: bool,
    may_exist: bool = False,
    transaction: Any = None,
) -> Any:
    """An array to write to, made with ``document`` if it is new; ``kvstore`` is opened, or its JSON.

    ``may_exist``: another process may have made it.
    """
    import tensorstore as ts

    spec: dict[str, Any] = {
        "driver": DRIVERS[zarr],
        "cache_pool": VALUES_POOL,
        # without it all-zero chunks are not stored, and Orbax refuses to restore
        "store_data_equal_to_fill_value": True,
    }
    options: dict[str, Any] = {"transaction": transaction} if transaction is not None else {}
    if isinstance(kvstore, dict):
        spec["kvstore"] = kvstore
    else:
        options["kvstore"] = kvstore
    if document is not None:
        spec["metadata"] = document
        # an array of several transactions: the one that makes it may still be on its way to the disk
        options["assume_metadata"] = not create
    return ts.open(
        spec, open=may_exist or not create, create=create, context=context, **options
    ).result()


def read_block(
    zarr: int,
    kvstore: dict[str, Any],
    leaf: PlannedLeaf,
    context: Any,
    window: Window,
    *,
    is_part: bool = False,
) -> np.ndarray[Any, Any] | None:
    """A block of an array that is being built; None if it, or the array, is not there, or damaged.

    ``is_part``: blocks of it may stand there without the document that says how they are stored.
    """
    import numpy as np
    import tensorstore as ts

    spec = {
        "driver": DRIVERS[zarr],
        "cache_pool": VALUES_POOL,
        "kvstore": kvstore,
        "metadata": leaf.document,
        "fill_missing_data_reads": False,
    }
    try:
        array = ts.open(
            spec, open=True, read=True, assume_metadata=is_part, context=context
        ).result()
        return np.asarray(array[window].read(order="C").result())
    except UNREADABLE:
        return None


def store_block(
    array: Any, window: Window, values: np.ndarray[Any, Any], name: str | None = None
) -> None:
    """Write a block. TensorStore may refer to ``values`` until they are committed; they must not change.

    ``name``: what errors call the array, if not by where it is stored.
    """
    # elements that lie apart are copied together here: to encode them one by one takes longer than both
    chunk = array.chunk_layout.read_chunk.shape or ()  # None for an array without axes
    stay = lies_in_a_row(chunk, values.shape)
    with write_errors(name or (array.kvstore.path if array.kvstore else "an array")):
        array[window].write(values, can_reference_source_data_indefinitely=stay).result()


def lies_in_a_row(chunk: Sequence[int], block: Sequence[int]) -> bool:
    """True if the elements of each chunk lie side by side in a C-contiguous block; both are given by their shapes.

    >>> lies_in_a_row((8, 64), (32, 64)), lies_in_a_row((1, 8, 64), (4, 32, 64))
    (True, True)
    >>> lies_in_a_row((32, 8), (32, 64))
    False
    """
    sizes = [(min(part, size), size) for part, size in zip(chunk, block, strict=True)]
    while sizes and sizes[0][0] == 1:
        sizes.pop(0)
    return all(part == size for part, size in sizes[1:])


def are_same(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    """True for the same bytes; types that NumPy does not export (bfloat16) are viewed as such."""
    import numpy as np

    a, b = (np.ascontiguousarray(v).reshape(-1).view(np.uint8) for v in (one, other))
    whole = a.size - a.size % 8  # eight at a time take half as long
    same = np.array_equal(a[:whole].view(np.uint64), b[:whole].view(np.uint64))
    return a.size == b.size and same and np.array_equal(a[whole:], b[whole:])
