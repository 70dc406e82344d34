"""Stored values that are copied into a database as they are encoded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

from surgery_cli.store.orbax.arrays import below
from surgery_cli.store.orbax.stored_values import StoredValue
from surgery_cli.store.write.item_plan import PlannedLeaf

RAW_BATCH_BYTES = 64 << 20
"""Encoded bytes that one transaction holds when they are copied without decoding."""


Copies: TypeAlias = Callable[[PlannedLeaf], bool]


def everything(_: PlannedLeaf) -> bool:
    """What one process copies that has no others beside it."""
    return True


_COPIES: Final = 3
"""So often a value is in memory while TensorStore takes it over: as it was read, and twice more."""


def copying_bytes(leaf: PlannedLeaf) -> int:
    """Bytes in memory while the largest stored value of a leaf is copied into a database without being decoded."""
    values = (len(value) for _, value in encoded_values([leaf]))
    return _COPIES * max(values, default=0)


def encoded_values(leaves: Iterable[PlannedLeaf]) -> Iterator[tuple[str, StoredValue]]:
    """What is copied without being decoded, by its new key; the document of what is rearranged is new."""
    for leaf in leaves:
        if leaf.referred is not None:
            key, document = leaf.stored_document
            yield below(leaf.name) + key, document
        for taken in leaf.taken:
            values = taken.store.stored_values(taken.array.name)
            for old, new in zip(taken.array.keys, taken.to, strict=True):
                yield below(leaf.name) + new, values[old]


def at_most(
    count: int, waiting: Iterator[tuple[str, StoredValue]]
) -> list[tuple[str, StoredValue]]:
    """The next values, until they have ``count`` bytes."""
    some, held = [], 0
    for key, value in waiting:
        some.append((key, value))
        held += len(value)
        if held > count:
            break
    return some
