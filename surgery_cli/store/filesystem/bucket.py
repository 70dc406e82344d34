"""The buckets of a service as a file system: folders are what the names of objects begin with."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import stat
import threading
from collections.abc import Iterator
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.store.filesystem.bucket_listings import Folder, Listings
from surgery_cli.store.filesystem.object_service import ObjectService, StoredObject
from surgery_cli.store.filesystem.protocol import Entry, Place
from surgery_cli.store.filesystem.read_ahead import ReadAhead

_PIECE_BYTES: Final = 8 << 20
"""What a reader asks for at most at once."""


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
        # every new object has a version of its own, and another key is another object
        number = _number(f"{found.key}\0{found.version}")
        return BucketStatus(stat.S_IFREG | 0o644, found.size, found.mtime_ns, device, number)

    def real(self, place: Place) -> Path:
        return BucketPath(place)

    def is_link(self, place: Place) -> bool:
        return False

    def open(self, place: Place) -> BufferedReader:
        path = BucketPath(place)
        found = self._find(path)
        if found is None:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        return BufferedReader(_ObjectReader(self._service, self._ahead, path, found))

    def kvstore(self, folder: Place) -> dict[str, Any]:
        path = BucketPath(folder)
        return self._service.kvstore(path.bucket, _begin_of(path))

    def create(self, place: Place) -> BinaryIO:
        raise _read_only(place)

    def copy(self, source: Place, target: Place) -> None:
        raise _read_only(target)

    def clone(self, source: Place, target: Place) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), str(target))

    link = clone

    def delete(self, place: Place) -> None:
        raise _read_only(place)

    delete_below = make_folder = delete_folder = delete

    def _of(self, path: BucketPath) -> Listings:
        if not path.bucket:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        with self._lock:
            if path.bucket not in self._listings:
                self._listings[path.bucket] = Listings(self._service, path.bucket)
            return self._listings[path.bucket]

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


class _ObjectReader(RawIOBase):
    """Reads ranges of an object."""

    def __init__(
        self, service: ObjectService, ahead: ReadAhead, path: BucketPath, found: StoredObject
    ) -> None:
        self._service = service
        self._ahead = ahead
        self._path = path
        self._found = found
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._found.size}[whence]
        self._at = max(start + offset, 0)
        return self._at

    def readall(self) -> bytes:
        return b"".join(iter(lambda: self.read(_PIECE_BYTES) or b"", b""))

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        stop = min(self._at + min(len(view), _PIECE_BYTES), self._found.size)
        if stop <= self._at:
            return 0
        try:
            name = f"{self._path}\0{self._found.version}"
            got = self._ahead.read(name, self._found.size, self._at, stop, self._fetch)
        except FileNotFoundError:
            raise FileNotFoundError(
                errno.ENOENT, os.strerror(errno.ENOENT), str(self._path)
            ) from None
        view[: len(got)] = got
        self._at += len(got)
        return len(got)

    def _fetch(self, start: int, stop: int) -> bytes:
        return self._service.read(self._path.bucket, self._found, start, stop)


def _begin_of(folder: BucketPath) -> str:
    """What the names of all in a folder begin with."""
    return f"{folder.key}/" if folder.key else ""


def _entries(folder: str, standing: Folder) -> list[Entry]:
    return [
        BucketEntry(name, f"{folder}/{name}", 0 if found is None else found.size, found is None)
        for name, found in sorted(standing.items())
    ]


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def _read_only(place: Place) -> OSError:
    return OSError(errno.EROFS, os.strerror(errno.EROFS), str(place))
