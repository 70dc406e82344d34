"""Shards of zarr3 held against the index in each: metadata that stands among the data."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from surgery_cli.errors import CheckpointError, UnseenError
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.interruptions import Threads
from surgery_cli.store.open.item import PytreeItem
from surgery_cli.store.orbax.shard_index import index_bytes, shard_fault
from surgery_cli.store.orbax.stored_values import StoredValue


def shard_faults(item: PytreeItem) -> Iterator[tuple[str, str]]:
    """Of each array the first shard that contradicts its index, at its end; nothing else of a shard is read."""
    if item.store is None:
        return
    lengths = {
        name: length
        for name, array in item.store.arrays.items()
        if (length := index_bytes(array.document))
    }
    at_once = filesystem.requests_at_once(item.directory)
    with Threads(at_once, thread_name_prefix="surgery-shards") as pool:
        for name, length in lengths.items():
            is_chunk = item.store.arrays[name].document.is_chunk
            values = {k: v for k, v in item.store.stored_values(name).items() if is_chunk(k)}
            look = partial(_fault, length)
            found = map(look, values.values()) if at_once == 1 else pool.map(look, values.values())
            for key, why in zip(values, found, strict=True):
                if why:
                    yield name, f"chunk '{key}' is damaged: {why}"
                    break


def _fault(length: int, shard: StoredValue) -> str:
    try:
        return shard_fault(shard, length)
    except UnseenError:
        raise
    except CheckpointError as error:
        return error.problems[0].why or error.problems[0].what
