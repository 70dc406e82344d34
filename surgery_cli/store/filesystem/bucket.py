"""The buckets of a service as a file system: folders are what the names of objects begin with."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

from surgery_cli.inputs.buckets import BucketPath, Replaced
from surgery_cli.settings.address_space import check_address_space
from surgery_cli.store.filesystem.background import in_background
from surgery_cli.store.filesystem.beginning import begin, read_among
from surgery_cli.store.filesystem.bucket_entries import (
    BucketStatus,
    entries_of,
    number_of,
    status_of,
)
from surgery_cli.store.filesystem.bucket_guard import Guard
from surgery_cli.store.filesystem.bucket_listings import Listings
from surgery_cli.store.filesystem.interruptions import Threads
from surgery_cli.store.filesystem.object_files import NewObject, ObjectReader, read_name
from surgery_cli.store.filesystem.object_service import ObjectService, StoredObject
from surgery_cli.store.filesystem.protocol import COMMIT_MARK, Documents, Entry, Place
from surgery_cli.store.filesystem.read_ahead import FETCHED_BYTES, Range, ReadAhead
from surgery_cli.store.filesystem.same_objects import object_at
from surgery_cli.store.filesystem.to_the_end import to_the_end


class Buckets:
    """The buckets of one service; see ``FileSystem``. Nothing is looked up twice until ``forget`` is called."""

    at_once = 32
    renames = False

    def __init__(self, service: ObjectService) -> None:
        self._service = service
        self._lock = threading.Lock()
        self._listings: dict[str, Listings] = {}
        self._ahead = ReadAhead()
        self._guards: list[Guard] = []

    @contextmanager
    def guarded(
        self, destination: BucketPath, check: Callable[[], None], *, seen_may_go: bool
    ) -> Iterator[Guard]:
        """For all that is written and deleted inside; see ``Guard``."""
        guard = Guard(self._service, destination, check, self._object, seen_may_go=seen_may_go)
        self._guards.append(guard)
        try:
            yield guard
        finally:
            self._guards.remove(guard)

    def _guard_of(self, path: BucketPath) -> Guard | None:
        return next((guard for guard in self._guards if guard.covers(path)), None)

    @property
    def needs_commit_mark(self) -> bool:
        return self._service.needs_commit_mark

    def forget(self, place: Place, *, but_begun: bool = False) -> None:
        path = BucketPath(place)
        if path.bucket:
            self._of(path).forget(path.key, but_begun=but_begun)

    def begin(self, place: Place, documents: Documents) -> None:
        self._service.load()
        if (path := BucketPath(place)).key:
            begin(path, self._of(path), documents, self._fetch)

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

    def fetch_made(self, folder: Place, documents: Documents) -> None:
        path = BucketPath(folder)
        if guard := self._guard_of(path):
            read_among(path, guard.made_below(path), documents, self._fetch)

    def _fetch(self, path: BucketPath, found: StoredObject) -> None:
        ObjectReader(self._service, self._ahead, path, found).readinto(bytearray(found.size))

    def entries(self, folder: Place) -> list[Entry]:
        path = BucketPath(folder)
        standing = self._of(path).folder(path.prefix)
        # raises where nothing stands; a folder may have lost what was in it since
        if not standing and path.key and self._find(path) is not None:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        return entries_of(str(path), standing)

    def below(self, folder: Place) -> Iterator[tuple[str, list[Entry]]]:
        path = BucketPath(folder)
        for prefix, standing in self._of(path).below(path.prefix):
            yield prefix, entries_of(f"{path}/{prefix}".rstrip("/"), standing)

    def status(self, place: Place) -> BucketStatus:
        path = BucketPath(place)
        return status_of(path, self._find(path))

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
        return self._service.kvstore(path.bucket, path.prefix)

    def create(self, place: Place) -> BinaryIO:
        return self._new(place, exclusively=True)

    def replace(self, place: Place) -> BinaryIO:
        return self._new(place, exclusively=False)

    def _new(self, place: Place, *, exclusively: bool) -> NewObject:
        path = BucketPath(place)
        return NewObject(path, self._put, self._stream, self._made, exclusively=exclusively)

    def _stream(self, path: BucketPath, exclusively: bool) -> Any:
        """What makes a large object; it is told no version that it may replace: that goes first."""
        if (guard := self._guard_of(path)) is None:
            return self._service.stream(path.bucket, path.key, exclusively=exclusively)
        if not exclusively:
            self.delete(path)
        return guard.stream(path)

    def put(self, place: Place, content: bytes, *, exclusively: bool = False) -> int:
        path = BucketPath(place)
        version = self._put(path, content, exclusively)
        self._made(path)
        return number_of(path.key, version)

    def _put(self, path: BucketPath, content: bytes, exclusively: bool) -> str:
        """Make an object, and give its version."""
        if (guard := self._guard_of(path)) is None:
            service = self._service
            return to_the_end(
                lambda: service.put(path.bucket, path.key, content, exclusively=exclusively)
            )
        if exclusively and guard.made(path) is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        return to_the_end(lambda: guard.put(path, content))

    def copy(self, source: Place, target: Place) -> None:
        origin, path = BucketPath(source), BucketPath(target)
        found = self._object(origin)
        if (guard := self._guard_of(path)) is None:
            to_the_end(lambda: self._service.copy(origin.bucket, found, path.bucket, path.key))
        else:
            to_the_end(lambda: guard.copy(origin.bucket, found, path))
        self._made(path)

    def clone(self, source: Place, target: Place) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), str(target))

    link = clone

    def delete(self, place: Place) -> None:
        path = BucketPath(place)
        with suppress(FileNotFoundError):
            found = None
            if guard := self._guard_of(path):
                found = guard.made(path)
                if found is None and not guard.seen_may_go and not guard.may_have_made(path):
                    return
                found = found or self._object(path)
                guard.before_deletion(found)
            self._delete(path, found)

    def _delete(self, path: BucketPath, found: StoredObject | None) -> None:
        """Delete an object, unless another one is in the place of what was found."""
        with suppress(FileNotFoundError, Replaced):
            to_the_end(lambda: self._service.delete(path.bucket, path.key, found))
        if guard := self._guard_of(path):
            guard.removed(path)
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

    def delete_as_found(self, place: Place) -> bool:
        path = BucketPath(place)
        guard = self._guard_of(path)
        try:
            found = (guard and guard.made(path)) or self._object(path)
            to_the_end(lambda: self._service.delete(path.bucket, path.key, found))
        except (FileNotFoundError, Replaced):  # or the answer to an earlier try was lost
            if object_at(self._service, path):
                return False
        finally:
            self.changed(path)
        if guard:
            guard.removed(path)
        return True

    def delete_below(self, folder: Place) -> None:
        self.forget(folder)
        inside = (e.place for _, entries in self.below(folder) for e in entries if e.is_file)
        paths = sorted(map(BucketPath, inside), key=lambda path: len(path.parts))
        guard = self._guard_of(BucketPath(folder))
        found = {path: None if guard is None else self._object(path) for path in paths}
        if guard is not None:  # what was seen before is not of who takes over later
            guard.check()
        marks = [path for path in paths if path.name == COMMIT_MARK]
        for path in marks:  # outermost first: what is left does not look whole
            self._delete(path, found.pop(path))
        with Threads(self.at_once, thread_name_prefix="surgery-delete") as pool:
            done = [pool.submit(self._delete, *pair) for pair in found.items()]
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
                check_address_space(has_bucket=True)
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
