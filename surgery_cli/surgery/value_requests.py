"""Which requests it takes to write values, and to read them back."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from surgery_cli.draft.kernels.fill import is_one_number
from surgery_cli.engine.forecast import blocks_of, pending_bytes
from surgery_cli.engine.grid import block_shape
from surgery_cli.engine.stream import batch_bytes
from surgery_cli.store.open.item import Item, PytreeItem
from surgery_cli.store.orbax.ocdbt import SMALL_BYTES
from surgery_cli.store.write.item import copied_leaves
from surgery_cli.store.write.item_plan import ItemPlan, PlannedLeaf, Way
from surgery_cli.store.write.sidecars import write_shape
from surgery_cli.store.write.strategy import is_per_leaf
from surgery_cli.surgery.copied_requests import add_copied, add_copied_to_files
from surgery_cli.surgery.read_requests import TO_OPEN
from surgery_cli.surgery.request_tally import Tally, parts

_DOCUMENT_BYTES: Final = 200
"""What a small document takes that says how an array is stored."""


def add_written(
    tally: Tally, plan: ItemPlan, memory_bytes: int, *, compact: bool, buffered: bool
) -> None:
    """What is written of an item, and read back to be held against it; ``buffered``: before it is sent."""
    ratio = compression(plan)
    count = _encoded_bytes(plan.computed, ratio)
    chunks = sum(map(_chunks_written, plan.computed))
    if is_per_leaf(plan.item):
        leaves = len(plan.computed)
        # arrays put together from others' chunks get a document, and nothing else
        add_arrays_written(tally, [*plan.computed, *plan.of(Way.ARRANGE)], ratio)
        add_copied_to_files(tally, plan.of(Way.RAW))
        documents = _DOCUMENT_BYTES * len(plan.leaves)
        if buffered:
            tally.read_back(len(plan.leaves), documents)
        else:
            tally.read_back(chunks + 2 * leaves + len(plan.leaves), count + documents)
        return
    each = 1 if buffered else 2  # a data object, and a manifest that comes with it or last
    commits = transactions(plan, memory_bytes)
    tally.write(each * commits, count, objects=commits)
    small = [leaf for leaf in plan.computed if ratio * leaf.written_bytes <= SMALL_BYTES]
    few = _encoded_bytes(small, ratio)
    large = chunks - sum(map(_chunks_written, small))
    if not buffered:
        tally.read_back(parts(few) + large + (TO_OPEN if large else 0), count)
    is_followed = commits > 0
    copied = copied_leaves(plan, compact=compact)
    add_copied(tally, copied, buffered=buffered, is_followed=is_followed)


def add_arrays_written(tally: Tally, leaves: Sequence[PlannedLeaf], ratio: float) -> None:
    """Arrays with folders of their own: of each its chunks, as far as they are computed, and a document."""
    count = _encoded_bytes(leaves, ratio)
    chunks = sum(map(_chunks_written, leaves))
    tally.write(chunks + len(leaves), count + _DOCUMENT_BYTES * len(leaves))


def _encoded_bytes(leaves: Iterable[PlannedLeaf], ratio: float) -> int:
    """What values take as they are stored: nearly nothing, where one number is repeated and anything is compressed."""
    of_many = [leaf for leaf in leaves if ratio >= 1 or not is_one_number(leaf.recipe)]
    return round(ratio * sum(leaf.written_bytes for leaf in of_many))


def compression(plan: ItemPlan) -> float:
    """Stored bytes over bytes of values: how far the item's values are compressed so far."""
    return compression_of([plan.item])


def compression_of(items: Iterable[Item]) -> float:
    """The same of several; of formats that are files nothing is known to be."""
    found = [item for item in items if isinstance(item, PytreeItem)]
    stored = (leaf.array for item in found for leaf in item.leaves.values())
    count = sum(array.stored_bytes for array in stored if array is not None)
    specs = (spec for item in found for spec in item.tree.values())
    values = sum(spec.bytes for spec in specs if spec.has_array)
    return min(count / values, 1.0) if values else 1.0


def _chunks_written(leaf: PlannedLeaf) -> int:
    if leaf.way is not Way.ENCODE:
        return 0
    if leaf.referred is not None:
        return len(leaf.referred.written)
    grid = zip(leaf.spec.shape, write_shape(leaf) or (), strict=True)
    return math.prod(-(-size // max(step, 1)) for size, step in grid)


def transactions(plan: ItemPlan, memory_bytes: int) -> int:
    """How many it takes to write the leaves that are computed, as ``Stream`` fills them."""
    limit, held, count = batch_bytes(memory_bytes), 0, 0
    for leaf in plan.computed:
        block = block_shape(leaf.spec, write_shape(leaf), *(() if leaf.is_read_whole else (1,)))
        for _ in blocks_of(leaf):
            held += pending_bytes(leaf, block)
            if held >= limit:
                count, held = count + 1, 0
    return count + bool(held)
