"""Where a run writes in a bucket: it replaces and deletes there what it knows, and nothing that has come since."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from surgery_cli.inputs.buckets import BucketPath, Replaced
from surgery_cli.store.filesystem.object_service import ObjectService, StoredObject


class Guard:
    """A destination that this run has locked.

    A look at the lock before each request would not do: a process may be stopped between the two for days. So the
    service is told with the request which version may be replaced; another one comes in its place only where that was
    seen first, and then the lock, still this run's: whoever takes over later replaces it, and the request fails.
    """

    def __init__(
        self, service: ObjectService, destination: BucketPath, check: Callable[[], None]
    ) -> None:
        """``check`` raises an error where the lock is another run's by now."""
        self._service = service
        self._place = destination
        self.check = check
        self._ours: dict[str, str] = {}
        """The versions of what this run has made, or has seen before it saw its lock."""

    def take_in(self, seen: Sequence[StoredObject]) -> None:
        """What was seen there may go."""
        self.check()
        self._ours.update({found.key: found.version for found in seen})

    def covers(self, path: BucketPath) -> bool:
        """True for the destination, what is in it, and its record beside it."""
        key = self._place.key
        is_inside = path.key.startswith(f"{key}/") or path.key in (key, f"{key}.surgery.json")
        return is_inside and (path.scheme, path.bucket) == (self._place.scheme, self._place.bucket)

    def make(
        self, path: BucketPath, known: StoredObject | None, request: Callable[[str], str]
    ) -> str:
        """Make an object in the place of ``known``, or of nothing; ``request`` is told the version that may go.

        Raises:
            FileExistsError: what stands there has come since, and is another run's; or what ``check`` raises.
        """
        if known and path.key not in self._ours:
            self.take_in([known])
        replacing = self._ours.get(path.key, "")
        while True:
            try:
                version = request(replacing)
            except (FileExistsError, FileNotFoundError, Replaced):
                standing = self._standing(path)
                if standing == replacing:  # it was something else that is not there
                    raise
                replacing = standing
                self.check()
            else:
                self._ours[path.key] = version
                return version

    def _standing(self, path: BucketPath) -> str:
        with suppress(FileNotFoundError):
            return self._service.look_up(path.bucket, path.key).version
        return ""

    def before_deletion(self, found: StoredObject) -> None:
        """``found`` was seen, and is about to go: where it may be another run's, look at the lock."""
        is_own = self._ours.get(found.key) == found.version
        if not (is_own and self._service.versions_are_unique):
            self.check()
