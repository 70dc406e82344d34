"""The index of a zarr3 shard, held against the shard: TensorStore reads what it leads to, wherever that lies.

Source: the ``sharding_indexed`` codec of the zarr3 specification; TensorStore writes chunks one after another.
"""

from __future__ import annotations

import math
import struct
from typing import Any, Final

import msgspec

from surgery_cli.store.orbax.stored_values import FileRange, StoredValue, whole
from surgery_cli.store.orbax.zarr import ArrayDocument

_ENTRY: Final = struct.Struct("<QQ")
_NOT_STORED: Final = (2**64 - 1, 2**64 - 1)
_INDEX_CODECS: Final = [{"configuration": {"endian": "little"}, "name": "bytes"}]
_CHECKSUM: Final = {"name": "crc32c"}
_CHECKSUM_BYTES: Final = 4


def index_bytes(document: ArrayDocument) -> int:
    """How long the index at the end of each shard is; 0 where a stored value is no shard, or one of another kind."""
    if document.zarr != 3:
        return 0
    codec = document.fields["codecs"][-1]
    given: dict[str, Any] = codec.get("configuration") or {}
    if codec["name"] != "sharding_indexed" or given.get("index_location", "end") != "end":
        return 0
    codecs = given.get("index_codecs")
    if codecs not in (_INDEX_CODECS, [*_INDEX_CODECS, _CHECKSUM]):
        return 0
    parts = zip(document.write_shape, document.chunk_shape, strict=True)
    count = math.prod(write // max(chunk, 1) for write, chunk in parts)
    return count * _ENTRY.size + (_CHECKSUM_BYTES if _CHECKSUM in codecs else 0)


def shard_fault(shard: StoredValue, length: int) -> str:
    """How a shard contradicts its index of that many bytes, in words; '' if the chunks fill it up to the index.

    Raises:
        CheckpointError: it cannot be read.
    """
    if len(shard) < length:
        return "it is shorter than the index at its end"
    raw = whole(_end(shard, length))
    places = _ENTRY.iter_unpack(raw[: length - length % _ENTRY.size])
    data, end = len(shard) - length, 0
    for offset, count in sorted(place for place in places if place != _NOT_STORED):
        if offset + count > data:
            return f"its index leads to bytes {offset:,} to {offset + count:,}, and chunks end at {data:,}"
        if offset < end:
            return f"its index leads to byte {offset:,} for two chunks"
        if offset > end:
            return f"its index leads to nothing between bytes {end:,} and {offset:,}"
        end = offset + count
    return "" if end == data else f"its index leads to nothing between bytes {end:,} and {data:,}"


def _end(value: StoredValue, count: int) -> StoredValue:
    start = len(value) - count
    if isinstance(value, FileRange):
        return msgspec.structs.replace(value, offset=value.offset + start, length=count)
    return value[start:]
