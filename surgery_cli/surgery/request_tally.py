"""Requests of a run by kind, as they are added up: it depends on where both sides lie which of them there are."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.store.filesystem.object_service import STREAMED_BYTES
from surgery_cli.store.filesystem.request_counts import Asked, Requests
from surgery_cli.store.filesystem.services import SERVICES

PIECE_BYTES: Final = 4 << 20
"""What is read at once of a file that is carried from one place to another."""

_PER_PAGE: Final = 1000
"""A list tells of so many objects."""

_LOOKED_UP: Final = 6
"""Objects that are looked up one by one, and lists that tell of too little, where one list does not tell of all."""


def parts(count: int) -> int:
    """In how many pieces so many bytes pass."""
    return -(-count // PIECE_BYTES)


class Tally:
    """Requests by kind of a run that builds its result at ``target``."""

    def __init__(self, target: Path, so_far: Requests) -> None:
        self._to = target if isinstance(target, BucketPath) else None
        self._service = None if self._to is None else SERVICES[self._to.scheme]
        self._in_parts = Requests()
        """What copies of the result take beside a request for each of its objects."""
        self.requests = so_far
        self.built = Asked()
        """The objects of the result, which are fewer than what is written: some are written again, or go."""
        self.known = Asked()
        """Those of them whose bytes are here in the end: marks and the record, and small ones that were read back."""

    def read(self, origin: Path, requests: int, count: int = 0) -> None:
        """Read so many bytes of what lies at ``origin``."""
        if isinstance(origin, BucketPath):
            self.requests += Requests(read=Asked(requests, count))

    def look_at(self, origin: Path, requests: int) -> None:
        if isinstance(origin, BucketPath):
            self.requests += Requests(other=requests)

    def list_source(self, origin: Path, objects: int) -> None:
        """What a list of so many objects takes beside its first page."""
        self.look_at(origin, _further_pages(objects))

    def list_destination(self, objects: int | None = None) -> None:
        """The same at the destination, where small files are looked up before all is listed; of all that is built, if
        nothing else is said.
        """
        if pages := _further_pages(self.built.requests if objects is None else objects):
            self.other(pages + _LOOKED_UP)

    def read_back(self, requests: int, count: int = 0) -> None:
        if self._to:
            self.requests += Requests(read=Asked(requests, count))

    def write(self, requests: int, count: int = 0, *, objects: int | None = None) -> None:
        """``objects``: so many more make up the result then; as many as the requests, unless it is said."""
        if self._to:
            self.requests += Requests(written=Asked(requests, count))
            self.built += Asked(requests if objects is None else objects, count)

    def write_beside(self, requests: int, count: int) -> None:
        """What is no part of the result: a lock, a journal."""
        if self._to:
            self.requests += Requests(written=Asked(requests, count))

    def other(self, requests: int) -> None:
        """Look at the destination, or delete something there."""
        if self._to:
            self.requests += Requests(other=requests)

    def copy(self, requests: int, count: int) -> None:
        """Marks: small objects that are copied at the destination."""
        if self._to:
            self.requests += Requests(copied=Asked(requests, count))
            self.built += Asked(requests, count)
            self.know(requests, count)

    def know(self, objects: int, count: int) -> None:
        """What a seal need not read: see ``known``."""
        self.known += Asked(objects, count)

    def carry(self, origin: Path, size: int, *, was_read: bool = False, stays: bool = True) -> None:
        """A file comes along as it is; ``was_read``: its bytes are here, as it was looked into.

        Unless it ``stays``, nothing refers to it in the end, and it is deleted.
        """
        service = self._service
        if service and isinstance(origin, BucketPath) and origin.scheme == service.scheme:
            self.requests += service.requests_to_copy(size)
        else:
            if not was_read:
                self.read(origin, parts(size), size)
            self._add_file(size)
        if stays:
            self._add_built(size)
        else:
            self.other(1)

    def write_file(self, size: int) -> None:
        """A file of the result is made; a large one piece by piece."""
        self._add_file(size)
        self._add_built(size)

    def _add_file(self, size: int) -> None:
        if self._service:
            is_large = size >= STREAMED_BYTES
            requests = self._service.requests_to_stream(size) if is_large else 1
            self.requests += Requests(written=Asked(requests, size))

    def _add_built(self, size: int) -> None:
        if self._service:
            self.built += Asked(1, size)
            self._in_parts += self._service.requests_to_copy(size) - Requests(copied=Asked(1, size))

    def replace(self, old: int) -> None:
        """What was built beside is copied to its place by the service, and goes, with so many ``old`` objects."""
        if self._to:
            self.requests += Requests(copied=self.built, other=self.built.requests + old)
            self.requests += self._in_parts


def _further_pages(objects: int) -> int:
    return 0 if objects <= _PER_PAGE else -(-objects // _PER_PAGE)
