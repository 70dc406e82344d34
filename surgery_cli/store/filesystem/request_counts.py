"""How often services that keep buckets were asked, and how many bytes went either way: by us, and by TensorStore."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from surgery_cli.inputs.buckets import SCHEMES
from surgery_cli.store.filesystem.object_service import (
    STREAMED_BYTES,
    ObjectService,
    Page,
    StoredObject,
)

_TENSORSTORE_NAMES: Final = {"gs": "gcs", "s3": "s3"}
"""What TensorStore calls the services in its own counts."""


class Asked(msgspec.Struct, frozen=True):
    """Requests of one kind, and the bytes of objects that they were about."""

    requests: int = 0
    bytes: int = 0

    def __add__(self, other: Asked) -> Asked:
        return Asked(self.requests + other.requests, self.bytes + other.bytes)

    def __sub__(self, other: Asked) -> Asked:
        return Asked(self.requests - other.requests, self.bytes - other.bytes)


class Requests(msgspec.Struct, frozen=True, kw_only=True):
    """Requests by kind. What a service refused, and was asked for again, counts once."""

    read: Asked = Asked()
    """Objects, or ranges of them."""
    written: Asked = Asked()
    copied: Asked = Asked()
    """By the service itself: no byte of them passes through this machine."""
    other: int = 0
    """Lists, look-ups and deletions, which are about no bytes."""

    def __add__(self, other: Requests) -> Requests:
        return Requests(
            read=self.read + other.read,
            written=self.written + other.written,
            copied=self.copied + other.copied,
            other=self.other + other.other,
        )

    def __sub__(self, other: Requests) -> Requests:
        return Requests(
            read=self.read - other.read,
            written=self.written - other.written,
            copied=self.copied - other.copied,
            other=self.other - other.other,
        )

    @property
    def total(self) -> int:
        return self.read.requests + self.written.requests + self.copied.requests + self.other


class _Counts:
    """What this process has asked for so far. May be used from threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.so_far = Requests()
        self.before: Requests | None = None
        """What had been asked for when ``counted_from_here`` was entered; what came since belongs to a command."""

    def add(self, asked: Requests) -> None:
        with self._lock:
            self.so_far += asked


_COUNTS: Final = _Counts()


def requests_so_far() -> Requests:
    """All requests of this process, those of TensorStore's drivers among them."""
    found = _COUNTS.so_far
    tensorstore = sys.modules.get("tensorstore")
    if tensorstore is None or not found.total:  # nothing is in a bucket that was not listed first
        return found
    for scheme in SCHEMES:
        place = f"/tensorstore/kvstore/{_TENSORSTORE_NAMES[scheme]}/"
        counted = {
            metric["name"].removeprefix(place): metric["values"][0].get("value", 0)
            for metric in tensorstore.experimental_collect_matching_metrics(place)
        }
        found += Requests(
            read=Asked(counted.get("batch_read", 0), counted.get("bytes_read", 0)),
            written=Asked(counted.get("write", 0), counted.get("bytes_written", 0)),
            other=counted.get("delete_range", 0) + counted.get("list", 0),
        )
    return found


@contextmanager
def counted_from_here() -> Iterator[None]:
    """What is asked for inside is counted by the run inside, though it has not begun."""
    _COUNTS.before = requests_so_far()
    try:
        yield
    finally:
        _COUNTS.before = None


def requests_before_run() -> Requests:
    """All requests of this process that do not belong to the run that begins now."""
    before, _COUNTS.before = _COUNTS.before, None
    return requests_so_far() if before is None else before


class CountedService:
    """A service whose requests are counted; see ``ObjectService``."""

    def __init__(self, service: ObjectService) -> None:
        self._service = service
        self.scheme = service.scheme
        self.needs_commit_mark = service.needs_commit_mark
        self.versions_are_unique = service.versions_are_unique
        self.ends_uploads = service.ends_uploads

    def requests_to_stream(self, size: int) -> int:
        """To make an object piece by piece: one names it, each piece is one, and so is the end, where that is said."""
        full, rest = divmod(size, STREAMED_BYTES)
        return 2 + full + (self.ends_uploads and rest > 0)

    def requests_to_put(self, size: int) -> Asked:
        parts = self.parts_of(size)
        return Asked(parts if parts == 1 else parts + 2, size)

    def requests_to_copy(self, size: int) -> Requests:
        """A copy, or one for each part: then one request names the object, and one says that it is whole."""
        parts = self.parts_of(size)
        return Requests(copied=Asked(parts, size), written=Asked(0 if parts == 1 else 2))

    def parts_of(self, size: int) -> int:
        return self._service.parts_of(size)

    def load(self) -> None:
        self._service.load()

    def page(self, bucket: str, prefix: str, delimiter: str, token: str | None) -> Page:
        _COUNTS.add(Requests(other=1))
        return self._service.page(bucket, prefix, delimiter, token)

    def look_up(self, bucket: str, key: str) -> StoredObject:
        _COUNTS.add(Requests(other=1))
        return self._service.look_up(bucket, key)

    def read(self, bucket: str, found: StoredObject, start: int, stop: int) -> bytes:
        content = self._service.read(bucket, found, start, stop)
        _COUNTS.add(Requests(read=Asked(1, len(content))))
        return content

    def put(self, bucket: str, key: str, content: bytes, *, exclusively: bool) -> str:
        _COUNTS.add(Requests(written=self.requests_to_put(len(content))))
        return self._service.put(bucket, key, content, exclusively=exclusively)

    def put_in_place(self, bucket: str, key: str, content: bytes, found: StoredObject) -> str:
        _COUNTS.add(Requests(written=Asked(1, len(content))))
        return self._service.put_in_place(bucket, key, content, found)

    def stream(self, bucket: str, key: str, *, exclusively: bool) -> Any:
        stream = self._service.stream(bucket, key, exclusively=exclusively)
        return _CountedStream(stream, self.requests_to_stream)

    def copy(
        self,
        bucket: str,
        found: StoredObject,
        to_bucket: str,
        to_key: str,
        replacing: str | None = None,
    ) -> str:
        _COUNTS.add(self.requests_to_copy(found.size))
        return self._service.copy(bucket, found, to_bucket, to_key, replacing)

    def delete(self, bucket: str, key: str, found: StoredObject | None = None) -> None:
        _COUNTS.add(Requests(other=1))
        self._service.delete(bucket, key, found)

    def kvstore(self, bucket: str, folder: str) -> dict[str, Any]:
        return self._service.kvstore(bucket, folder)


class _CountedStream:
    """A file that is written piece by piece: what was asked for by now is counted with each piece, and at the end."""

    def __init__(self, stream: Any, in_all: Callable[[int], int]) -> None:
        """``in_all``: how many requests so many bytes take."""
        self._stream = stream
        self._in_all = in_all
        self._written = 0
        self._counted = Asked()

    def write(self, content: bytes) -> None:
        self._stream.write(content)
        self._written += len(content)
        pieces = self._written // STREAMED_BYTES
        self._count(Asked(1 + pieces, pieces * STREAMED_BYTES))

    def _count(self, by_now: Asked) -> None:
        _COUNTS.add(Requests(written=by_now - self._counted))
        self._counted = by_now

    def close(self) -> str | None:
        version: str | None = self._stream.close()
        self._count(Asked(self._in_all(self._written), self._written))
        return version

    def discard(self) -> None:
        self._stream.discard()
