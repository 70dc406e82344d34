"""Where a run writes in a bucket: it replaces and deletes there what it knows, and nothing that has come since."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from surgery_cli.inputs.buckets import BucketPath, Replaced, ServiceRefusal
from surgery_cli.store.filesystem.meanwhile import written_meanwhile
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
    ) -> None:
        """``check`` raises an error where the lock is another run's by now; ``seen`` tells an object as it was seen."""
        self._service = service
        self._place = destination
        self.check = check
        self._seen = seen
        self._ours: dict[str, StoredObject] = {}
        """What this run has made, or has seen before it saw its lock."""
        self._asked: set[str] = set()
        """What this run has asked the service to make; where no answer came, it may stand there."""

    def take_in(self, seen: Sequence[StoredObject]) -> None:
        """What was seen there may go."""
        self.check()
        self._ours.update({found.key: found for found in seen})

    def may_go(self, files: Iterable[Path]) -> None:
        """As ``take_in``, of files by their paths."""
        self.take_in([self._seen(BucketPath(file)) for file in files])

    def covers(self, path: BucketPath) -> bool:
        """True for the destination, what is in it, and its record beside it."""
        key = self._place.key
        is_inside = path.key.startswith(f"{key}/") or path.key in (key, f"{key}.surgery.json")
        return is_inside and (path.scheme, path.bucket) == (self._place.scheme, self._place.bucket)

    def put(self, path: BucketPath, known: StoredObject | None, content: bytes) -> str:
        """Make an object of this content; see ``_make``."""

        def request(replacing: str) -> str:
            if not replacing:
                return self._service.put(path.bucket, path.key, content, exclusively=True)
            found = StoredObject(path.key, 0, 0, replacing)
            return self._service.put_in_place(path.bucket, path.key, content, found)

        is_same = partial(holds, self._service, path.bucket, content=content)
        return self._make(path, len(content), known, request, is_same)

    def put_new(self, path: BucketPath, content: bytes) -> str:
        """Make an object in the place of nothing. Raises FileExistsError: something stands there."""
        self._asked.add(path.key)
        try:
            version = self._service.put(path.bucket, path.key, content, exclusively=True)
        except FileExistsError:
            self._asked.discard(path.key)
            raise
        self._made(path, len(content), version)
        return version

    def copy(
        self, bucket: str, found: StoredObject, path: BucketPath, known: StoredObject | None
    ) -> str:
        """Make a copy of an object that was ``found`` in a bucket; see ``_make``."""

        def request(replacing: str) -> str:
            return self._service.copy(bucket, found, path.bucket, path.key, replacing)

        is_same = partial(are_same, self._service, bucket, found, path.bucket)
        return self._make(path, found.size, known, request, is_same)

    def _make(
        self,
        path: BucketPath,
        size: int,
        known: StoredObject | None,
        request: Callable[[str], str],
        is_same: Callable[[StoredObject], bool],
    ) -> str:
        """Make an object in the place of ``known``, or of nothing; ``request`` is told the version that may go.

        Where answers are lost, the libraries ask again, and hear that something has come: their own. What stands after
        that was replaced once, holds what is to be made (``is_same`` tells) and has come under this run's lock, is
        taken for it. Not at first: it may come from a run before, which may still remove what it has made.

        Raises:
            DestinationError: what stands there has come since and is something else, or what stood was removed.
            FileExistsError: the lock is another run's by now; or what else ``check`` raises.
            ServiceRefusal: for a minute, it came anew each time.
        """
        if known and path.key not in self._ours:
            self.take_in([known])
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
        else:
            raise ServiceRefusal(
                f"it was made {len(_PAUSES)} times, and came from elsewhere each time",
                str(path),
                "see that nothing else writes there, then run the command again",
            )
        self._made(path, size, version)
        return version

    def _made(self, path: BucketPath, size: int, version: str) -> None:
        self._ours[path.key] = StoredObject(path.key, size, 0, version)

    def _version_of(self, key: str) -> str | None:
        ours = self._ours.get(key)
        return None if ours is None else ours.version

    def removed(self, path: BucketPath) -> None:
        """An object is gone: what is made there next comes in the place of nothing."""
        self._ours.pop(path.key, None)

    def made(self, path: BucketPath) -> StoredObject | None:
        """What this run has made there, if it has: by its name, size and version, which is all that a request needs."""
        return self._ours.get(path.key)

    def made_below(self, folder: BucketPath) -> list[StoredObject]:
        """As ``made``, of a folder."""
        return [one for key, one in self._ours.copy().items() if key.startswith(folder.prefix)]

    def has_made(self, file: Path) -> bool:
        """True if this run has made it, or was told that it may go."""
        return self.made(BucketPath(file)) is not None

    def streams(self, path: BucketPath) -> None:
        """From now on it may stand there, in a version that nobody tells."""
        self.removed(path)
        self._asked.add(path.key)

    @property
    def may_have_put(self) -> bool:
        """True if anything may stand there that this run has made."""
        return bool(self._asked)

    def may_have_made(self, file: Path) -> bool:
        """True if what was seen there can be this run's; where an answer was lost, nobody knows which version is."""
        path = BucketPath(file)
        ours = self._version_of(path.key)
        return path.key in self._asked and ours in (None, self._seen(path).version)

    def unlike(self, standing: Iterable[Path]) -> tuple[list[Path], list[Path]]:
        """Of what stands at the destination, what is not as this run has made it; and what it has made, and is gone.

        Of what was made piece by piece, no version is known.
        """
        found = {path.key: self._seen(path).version for path in map(BucketPath, standing)}
        found = {key: found[key] for key in found.keys() - (self._asked - self._ours.keys())}
        others = [key for key, version in found.items() if self._version_of(key) != version]
        bucket = self._place.parents[-1]
        return [bucket / key for key in others], [bucket / key for key in self._ours.keys() - found]

    def before_deletion(self, found: StoredObject) -> None:
        """``found`` was seen, and is about to go: where it may be another run's, look at the lock."""
        is_own = self._version_of(found.key) == found.version
        if not (is_own and self._service.versions_are_unique):
            self.check()
