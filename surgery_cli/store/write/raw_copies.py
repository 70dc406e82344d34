"""Stored values that are copied into a database as they are encoded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.interruptions import Threads
from surgery_cli.store.orbax.arrays import below
from surgery_cli.store.orbax.stored_values import PIECE_BYTES, FileRange, StoredValue, whole
from surgery_cli.store.write.item_plan import PlannedLeaf

RAW_BATCH_BYTES = 32 << 20
"""Encoded bytes that one transaction holds when they are copied without decoding."""


Copies: TypeAlias = Callable[[PlannedLeaf], bool]


def everything(_: PlannedLeaf) -> bool:
    """What one process copies that has no others beside it."""
    return True


_AT_ONCE: Final = 4
"""Values that are read at once: more would only wait in memory for what is sent."""

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


def batches(leaves: Iterable[PlannedLeaf]) -> Iterator[list[tuple[str, StoredValue]]]:
    """What is copied of leaves in one transaction each."""
    waiting = encoded_values(leaves)
    while some := _at_most(RAW_BATCH_BYTES, waiting):
        yield some


def read_whole(some: Sequence[tuple[str, StoredValue]]) -> dict[str, bytes]:
    """The bytes of values, by key: of large ones in a bucket several at once, which wait for one another nowhere.

    Small ones come with their neighbours, in the requests that were made for them.
    """
    at_once = 1
    for _, value in some:
        if isinstance(value, FileRange):
            at_once = filesystem.requests_at_once(value.path)
            break
    large = [(key, value) for key, value in some if len(value) >= PIECE_BYTES]
    if at_once == 1 or len(large) < 2:
        return {key: whole(value) for key, value in some}
    with Threads(min(at_once, len(large), _AT_ONCE), thread_name_prefix="surgery-copy") as pool:
        read = pool.map(whole, [value for _, value in large])
        small = {key: whole(value) for key, value in some if len(value) < PIECE_BYTES}
        return small | dict(zip((key for key, _ in large), read, strict=True))


def _at_most(
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
