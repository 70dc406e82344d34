"""What a service that keeps objects in buckets must be able to do, so that its buckets can be read like a disk."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec


class StoredObject(msgspec.Struct, frozen=True, gc=False):
    """What a listing tells of an object; ``version`` is another one for what is put in its place."""

    key: str
    size: int
    mtime_ns: int
    version: str


class Page(msgspec.Struct, frozen=True):
    """A part of a listing, in order: objects, what the names of others begin with, and how to ask for the next."""

    objects: list[StoredObject]
    prefixes: list[str]
    next_page: str | None


class ObjectService(Protocol):
    """A service; keys have no slash in front. Tries again by itself what may go better then.

    Every method raises FileNotFoundError for what is not there, and ServiceRefusal where the service says no, cannot
    be reached, or would need a package or credentials that are not there.
    """

    @property
    def scheme(self) -> str:
        """What addresses begin with, before ``://``."""

    @property
    def needs_commit_mark(self) -> bool:
        """True where Orbax takes a save for finished only once its ``commit_success.txt`` is there."""

    def page(self, bucket: str, prefix: str, delimiter: str, token: str | None) -> Page:
        """One request of a listing: with ``delimiter`` '/' of one folder, with '' of everything below ``prefix``."""

    def look_up(self, bucket: str, key: str) -> StoredObject:
        """What is known of one object, in one request."""

    def read(self, bucket: str, found: StoredObject, start: int, stop: int) -> bytes:
        """Bytes of an object as it was when it was found; FileNotFoundError if another one is in its place."""

    def kvstore(self, bucket: str, folder: str) -> dict[str, Any]:
        """How TensorStore is told of a folder (with a slash at the end, or '')."""
