"""The buckets of a service as a file system: folders are what the names of objects begin with."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from surgery_cli.inputs.buckets import BucketPath, Replaced
from surgery_cli.store.filesystem.background import in_background
from surgery_cli.store.filesystem.bucket_listings import Folder, Listings
from surgery_cli.store.filesystem.interruptions import Threads
from surgery_cli.store.filesystem.object_files import NewObject, ObjectReader, read_name
from surgery_cli.store.filesystem.object_service import ObjectService, StoredObject
from surgery_cli.store.filesystem.protocol import Entry, Place
from surgery_cli.store.filesystem.read_ahead import FETCHED_BYTES, Range, ReadAhead
from surgery_cli.store.filesystem.to_the_end import to_the_end


class BucketStatus(msgspec.Struct, frozen=True):
    """What is known of an object or folder, by the names of ``os.stat_result``."""

    st_mode: int
    st_size: int
    st_mtime_ns: int
    st_dev: int
    st_ino: int
    st_nlink: int = 1


class BucketEntry(msgspec.Struct, frozen=True):
    """Something that stands in a folder of a bucket, as its listing tells."""

    name: str
    place: str
    size: int
    is_folder: bool
    is_link: bool = False

    @property
    def is_file(self) -> bool:
        return not self.is_folder


class Buckets:
    """The buckets of one service; see ``FileSystem``. Nothing is looked up twice until ``forget`` is called."""

    at_once = 32
    renames = False

    def __init__(self, service: ObjectService) -> None:
        self._service = service
        self._lock = threading.Lock()
        self._listings: dict[str, Listings] = {}
        self._ahead = ReadAhead()

    @property
    def needs_commit_mark(self) -> bool:
        return self._service.needs_commit_mark

    def forget(self, place: Place) -> None:
        path = BucketPath(place)
        if path.bucket:
            self._of(path).forget(path.key)

    def look_ahead(self, place: Place, *, around: bool = False) -> None:
        path = BucketPath(place)
        if path.key:
            self._of(path).look_ahead(path.key, around=around)

    def fetch(self, file: Place) -> None:
        path = BucketPath(file)
        with suppress(FileNotFoundError):
            found = self._find(path)
            if found is not None and 0 < found.size < FETCHED_BYTES:
                in_background(self._fetch, path, found)

    def _fetch(self, path: BucketPath, found: StoredObject) -> None:
        reader = ObjectReader(self._service, self._ahead, path, found)
        reader.readinto(bytearray(found.size))

    def entries(self, folder: Place) -> list[Entry]:
        path = BucketPath(folder)
        standing = self._of(path).folder(_begin_of(path))
        if not standing and path.key:
            self._find(path)  # raises where nothing stands
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        return _entries(str(path), standing)

    def below(self, folder: Place) -> Iterator[tuple[str, list[Entry]]]:
        path = BucketPath(folder)
        for prefix, standing in self._of(path).below(_begin_of(path)):
            yield prefix, _entries(f"{path}/{prefix}".rstrip("/"), standing)

    def status(self, place: Place) -> BucketStatus:
        path = BucketPath(place)
        found = self._find(path)
        device = _number(f"{self._service.scheme}://{path.bucket}")
        if found is None:
            return BucketStatus(stat.S_IFDIR | 0o755, 0, 0, device, _number(f"{path.key}/"))
        number = _number_of(found.key, found.version)
        return BucketStatus(stat.S_IFREG | 0o644, found.size, found.mtime_ns, device, number)

    def status_now(self, place: Place) -> BucketStatus:
        path = BucketPath(place)
        try:
            found = self._service.look_up(path.bucket, path.key)
        except FileNotFoundError:
            self._of(path).removed(path.key)
            raise
        self._of(path).saw(found)
        return self.status(path)

    def real(self, place: Place) -> Path:
        return BucketPath(place)

    def is_link(self, place: Place) -> bool:
        return False

    def open(self, place: Place) -> BufferedReader:
        path = BucketPath(place)
        return BufferedReader(ObjectReader(self._service, self._ahead, path, self._object(path)))

    def expect(self, place: Place, ranges: Iterable[Range]) -> None:
        path = BucketPath(place)
        found = self._find(path)
        if found is not None:
            self._ahead.expect(read_name(path, found), ranges)

    def kvstore(self, folder: Place) -> dict[str, Any]:
        path = BucketPath(folder)
        return self._service.kvstore(path.bucket, _begin_of(path))

    def create(self, place: Place) -> BinaryIO:
        return self._new(place, exclusively=True)

    def replace(self, place: Place) -> BinaryIO:
        return self._new(place, exclusively=False)

    def _new(self, place: Place, *, exclusively: bool) -> NewObject:
        return NewObject(self._service, BucketPath(place), self._made, exclusively=exclusively)

    def put(self, place: Place, content: bytes, *, exclusively: bool = False) -> int:
        path = BucketPath(place)
        version = to_the_end(
            lambda: self._service.put(path.bucket, path.key, content, exclusively=exclusively)
        )
        self._made(path)
        return _number_of(path.key, version)

    def copy(self, source: Place, target: Place) -> None:
        origin, path = BucketPath(source), BucketPath(target)
        found = self._object(origin)
        to_the_end(lambda: self._service.copy(origin.bucket, found, path.bucket, path.key))
        self._made(path)

    def clone(self, source: Place, target: Place) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), str(target))

    link = clone

    def delete(self, place: Place) -> None:
        path = BucketPath(place)
        with suppress(FileNotFoundError):
            to_the_end(lambda: self._service.delete(path.bucket, path.key))
        self._of(path).removed(path.key)

    def replace_as_found(self, place: Place, content: bytes) -> None:
        path = BucketPath(place)
        try:
            found = self._object(path)
            to_the_end(lambda: self._service.put_in_place(path.bucket, path.key, content, found))
        except Replaced:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        finally:
            self.changed(path)

    def delete_as_found(self, place: Place) -> None:
        path = BucketPath(place)
        with suppress(FileNotFoundError, Replaced):
            found = self._object(path)
            to_the_end(lambda: self._service.delete(path.bucket, path.key, found))
        self.changed(path)

    def delete_below(self, folder: Place) -> None:
        self.forget(folder)
        objects = [
            entry.place for _, inside in self.below(folder) for entry in inside if entry.is_file
        ]
        with Threads(self.at_once, thread_name_prefix="surgery-delete") as pool:
            done = [pool.submit(self.delete, place) for place in objects]
        for future in done:  # all that can be deleted is
            future.result()

    def make_folder(self, folder: Place) -> None:
        """Nothing: folders are names."""

    delete_folder = make_folder

    def _made(self, path: BucketPath) -> None:
        """An object was made or replaced."""
        self._of(path).made(path.key)

    def changed(self, path: BucketPath) -> None:
        """An object was made, replaced or deleted."""
        self._of(path).changed(path.key)

    def _of(self, path: BucketPath) -> Listings:
        if not path.bucket:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        with self._lock:
            if path.bucket not in self._listings:
                self._listings[path.bucket] = Listings(self._service, path.bucket)
            return self._listings[path.bucket]

    def _object(self, path: BucketPath) -> StoredObject:
        """As ``_find``, of an object."""
        found = self._find(path)
        if found is None:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        return found

    def _find(self, path: BucketPath) -> StoredObject | None:
        """The object at a path; None for a folder.

        Raises:
            FileNotFoundError: neither stands there.
        """
        listings = self._of(path)
        if not path.key:
            listings.folder("")
            return None
        try:
            return listings.find(path.key)
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None


def _begin_of(folder: BucketPath) -> str:
    """What the names of all in a folder begin with."""
    return f"{folder.key}/" if folder.key else ""


def _entries(folder: str, standing: Folder) -> list[Entry]:
    return [
        BucketEntry(name, f"{folder}/{name}", 0 if found is None else found.size, found is None)
        for name, found in sorted(standing.items())
    ]


def _number_of(key: str, version: str) -> int:
    """Every new object has a version of its own, and another key is another object."""
    return _number(f"{key}\0{version}")


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
