"""Where a run writes in a bucket: it replaces and deletes there what it knows, and nothing that has come since."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final

from surgery_cli.inputs.buckets import BucketPath, Replaced, ServiceRefusal, StoredOtherwise
from surgery_cli.store.filesystem.meanwhile import written_meanwhile
from surgery_cli.store.filesystem.names import name_of_record
from surgery_cli.store.filesystem.object_service import ObjectService, StoredObject
from surgery_cli.store.filesystem.same_objects import are_same, holds, object_at

_PAUSES: Final = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Seconds before something is made once more in the place of what came: about a minute, as for all requests."""


class Guard:
    """A destination that this run has locked.

    A look at the lock before each request would not do: a process may be stopped between the two for days. So the
    service is told with the request which version may be replaced; another one comes in its place only where that was
    seen first, and then the lock, still this run's: whoever takes over later replaces it, and the request fails.
    """

    def __init__(
        self,
        service: ObjectService,
        destination: BucketPath,
        check: Callable[[], None],
        seen: Callable[[BucketPath], StoredObject],
        *,
        seen_may_go: bool,
    ) -> None:
        """``check`` raises an error where the lock is another run's by now; ``seen`` tells an object as it was seen.
        ``seen_may_go``: whatever stands there may be deleted; else what this run has made, or was told that may go.
        """
        self._service = service
        self._place = destination
        self.check = check
        self._seen = seen
        self.seen_may_go = seen_may_go
        self._ours: dict[str, StoredObject] = {}
        """What this run has made, or was told that may go."""
        self._asked: set[str] = set()
        """What this run has asked the service to make, and the service has not refused."""
        self._unsure: dict[str, Callable[[StoredObject], bool]] = {}
        """Of what no answer came, whether an object can be that."""

    def may_go(self, files: Iterable[Path]) -> None:
        """What was seen there may be replaced, or deleted."""
        seen = [self._seen(BucketPath(file)) for file in files]
        self.check()
        self._ours.update({found.key: found for found in seen})

    def covers(self, path: BucketPath) -> bool:
        """True for the destination, what is in it, and its record beside it."""
        key = self._place.key
        record = self._place.with_name(name_of_record(self._place.name)).key
        is_inside = path.key.startswith(f"{key}/") or path.key in (key, record)
        return is_inside and (path.scheme, path.bucket) == (self._place.scheme, self._place.bucket)

    def put(self, path: BucketPath, content: bytes) -> str:
        """Make an object of this content; see ``_make``."""

        def request(replacing: str) -> str:
            if not replacing:
                return self._service.put(path.bucket, path.key, content, exclusively=True)
            found = StoredObject(path.key, 0, 0, replacing)
            return self._service.put_in_place(path.bucket, path.key, content, found)

        is_same = partial(holds, self._service, path.bucket, content=content)
        return self._make(path, len(content), request, is_same)

    def copy(self, bucket: str, found: StoredObject, path: BucketPath) -> str:
        """Make a copy of an object that was ``found`` in a bucket; see ``_make``."""

        def request(replacing: str) -> str:
            return self._service.copy(bucket, found, path.bucket, path.key, replacing)

        is_same = partial(are_same, self._service, bucket, found, path.bucket)
        return self._make(path, found.size, request, is_same)

    def stream(self, path: BucketPath) -> GuardedStream:
        """Make an object piece by piece, in the place of nothing: what this run has made there goes first."""
        self._asked.add(path.key)
        stream = self._service.stream(path.bucket, path.key, exclusively=True)
        return GuardedStream(stream, partial(self._streamed, path), partial(self._failed, path))

    def _streamed(self, path: BucketPath, size: int, version: str | None) -> None:
        if version is None:
            self._unsure[path.key] = lambda found: found.size == size
        else:
            self._made(path, StoredObject(path.key, size, 0, version))

    def _failed(self, path: BucketPath, size: int, error: BaseException) -> BaseException:
        """What is raised where an object could not be made piece by piece."""
        if isinstance(error, FileExistsError):
            self._asked.discard(path.key)
            return written_meanwhile(self._place, [path])
        self._streamed(path, size, None)
        return error

    def _make(
        self,
        path: BucketPath,
        size: int,
        request: Callable[[str], str],
        is_same: Callable[[StoredObject], bool],
    ) -> str:
        """Make an object in the place of what this run has made there, or of nothing; ``request`` is told the version
        that may go.

        Where answers are lost, the libraries ask again, and hear that something has come: their own. What stands after
        that was replaced once, holds what is to be made (``is_same`` tells) and has come under this run's lock, is
        taken for it. Not at first: it may come from a run before, which may still remove what it has made.

        Raises:
            DestinationError: what stands there has come since and is something else, or what stood was removed.
            FileExistsError: the lock is another run's by now; or what else ``check`` raises.
            ServiceRefusal: for a minute, it came anew each time.
        """
        replacing = self._version_of(path.key) or ""
        self._asked.add(path.key)
        for round_, pause in enumerate(_PAUSES):
            try:
                version = request(replacing)
                break
            except (FileExistsError, FileNotFoundError, Replaced):
                there = object_at(self._service, path)
                found = there.version if there else ""
                if found == replacing:  # it was something else that is not there
                    raise
                self.check()
                if there is None or not is_same(there):
                    self._asked.discard(path.key)
                    raise written_meanwhile(self._place, [path], is_gone=there is None) from None
                if round_:
                    version = found
                    break
                replacing = found
                time.sleep(pause)
            except StoredOtherwise as error:
                self._made(path, StoredObject(path.key, size, 0, error.version))
                raise
            except OSError:
                self._unsure[path.key] = is_same
                raise
        else:
            raise ServiceRefusal(
                f"it was made {len(_PAUSES)} times, and came from elsewhere each time",
                str(path),
                "see that nothing else writes there, then run the command again",
            )
        self._made(path, StoredObject(path.key, size, 0, version))
        return version

    def _made(self, path: BucketPath, made: StoredObject) -> None:
        self._ours[path.key] = made
        self._unsure.pop(path.key, None)

    def _version_of(self, key: str) -> str | None:
        ours = self._ours.get(key)
        return None if ours is None else ours.version

    def removed(self, path: BucketPath) -> None:
        """An object is gone: what is made there next comes in the place of nothing."""
        self._ours.pop(path.key, None)
        self._unsure.pop(path.key, None)
        self._asked.discard(path.key)

    def made(self, path: BucketPath) -> StoredObject | None:
        """What this run has made there, if it has: by its name, size and version, which is all that a request needs."""
        return self._ours.get(path.key)

    def made_below(self, folder: BucketPath) -> list[StoredObject]:
        """As ``made``, of a folder."""
        return [one for key, one in self._ours.copy().items() if key.startswith(folder.prefix)]

    def has_made(self, file: Path) -> bool:
        """True if this run has made it, or was told that it may go."""
        return self.made(BucketPath(file)) is not None

    @property
    def may_have_put(self) -> bool:
        """True if anything may stand there that this run has made."""
        return bool(self._asked)

    def may_have_made(self, file: Path) -> bool:
        """True if what was seen there is this run's, or can be, as an answer was lost. Raises OSError."""
        path = BucketPath(file)
        return path.key in self._asked and self._is_ours(path)

    def _is_ours(self, path: BucketPath) -> bool:
        """True if what was seen there has this run made, or may go; or can be, as an answer was lost."""
        seen = self._seen(path)
        can_be = self._unsure.get(path.key)
        return self._version_of(path.key) == seen.version or bool(can_be and can_be(seen))

    def unlike(self, standing: Iterable[Path]) -> tuple[list[Path], list[Path]]:
        """Of what stands at the destination, what is not as this run has made it; and what it has made, and is gone."""
        places = list(map(BucketPath, standing))
        gone = self._ours.keys() - {path.key for path in places}
        bucket = self._place.parents[-1]
        return [path for path in places if not self._is_ours(path)], [bucket / key for key in gone]

    def before_deletion(self, found: StoredObject) -> None:
        """``found`` was seen, and is about to go: where it may be another run's, look at the lock."""
        is_own = self._version_of(found.key) == found.version
        if not (is_own and self._service.versions_are_unique):
            self.check()


class GuardedStream:
    """An object that a guarded destination gets piece by piece; see ``ObjectService.stream``."""

    def __init__(
        self,
        stream: Any,
        made: Callable[[int, str | None], None],
        failed: Callable[[int, BaseException], BaseException],
    ) -> None:
        """``made`` is told size and version; ``failed`` size and error, and gives the error that is raised."""
        self._stream = stream
        self._made = made
        self._failed = failed
        self._size = 0

    def write(self, piece: bytes) -> None:
        self._size += len(piece)
        self._stream.write(piece)

    def discard(self) -> None:
        self._stream.discard()

    def close(self) -> None:
        try:
            version = self._stream.close()
        except BaseException as error:
            raised = self._failed(self._size, error)
            if raised is error:
                raise
            raise raised from None
        self._made(self._size, version)
