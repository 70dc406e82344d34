"""Whether an object holds what another one does, or what was sent: by the digests that a service tells, or read."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.store.filesystem.fsspec_service import md5_of
from surgery_cli.store.filesystem.object_service import ObjectService, StoredObject

_PIECE_BYTES: Final = 8 << 20


def holds(service: ObjectService, bucket: str, found: StoredObject, content: bytes) -> bool:
    """True for an object with this content. Raises OSError: it cannot be read."""
    if found.size != len(content) or found.digest == md5_of(content):
        return found.size == len(content)
    return all(
        service.read(bucket, found, start, stop) == content[start:stop]
        for start, stop in _pieces(found.size)
    )


def are_same(
    service: ObjectService, bucket: str, one: StoredObject, other_bucket: str, other: StoredObject
) -> bool:
    """True for two objects of one content; made in parts, they may have digests that tell nothing. Raises OSError."""
    if one.size != other.size or (one.digest and one.digest == other.digest):
        return one.size == other.size
    return all(
        service.read(bucket, one, start, stop) == service.read(other_bucket, other, start, stop)
        for start, stop in _pieces(one.size)
    )


def _pieces(size: int) -> list[tuple[int, int]]:
    return [(start, min(start + _PIECE_BYTES, size)) for start in range(0, size, _PIECE_BYTES)]


def object_at(service: ObjectService, path: BucketPath) -> StoredObject | None:
    """The object that stands there now. Raises OSError: nobody can tell."""
    with suppress(FileNotFoundError):
        return service.look_up(path.bucket, path.key)
    return None
