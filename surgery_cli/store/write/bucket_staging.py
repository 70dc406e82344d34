"""The new checkpoint where nothing can be renamed: built under its own name, whole once its mark is there."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from surgery_cli.errors import DestinationError, SurgeryError, WriteError
from surgery_cli.inputs.buckets import BucketPath, path_at
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.background import in_background
from surgery_cli.store.filesystem.bucket_locks import Lock
from surgery_cli.store.filesystem.interruptions import Threads, uninterrupted
from surgery_cli.store.filesystem.links import Linker
from surgery_cli.store.filesystem.listing import COMMIT_MARK, STAGING_MARK
from surgery_cli.store.filesystem.processes import Owner
from surgery_cli.store.locate.location import locate
from surgery_cli.store.write.aftermath import Completed, begin_anew, remaining
from surgery_cli.store.write.destination import already_there, claimed
from surgery_cli.store.write.journal import Journal, Placed


class BucketStaging:
    """As ``Staging``, in a bucket: inside, ``new`` is where to build; ``commit`` makes it whole; else nothing is left.

    An object that only one of two runs can make keeps the others away. Readers, Orbax among them, take what is built
    for unfinished until ``commit_success.txt`` is there, and that is written last; where Orbax asks for no such mark,
    that object says so. What ``force`` replaces stands until the new checkpoint is whole beside it.
    """

    journal: Journal | None = None

    def __init__(self, destination: BucketPath, linker: Linker, *, force: bool = False) -> None:
        self.destination = destination
        self.force = force
        self._linker = linker
        self._token = secrets.token_hex(8)
        self._beside = destination.with_name(f".{destination.name}{STAGING_MARK}{self._token[:8]}")
        self._replaces = filesystem.exists(destination)  # looked at anew once nobody else may write
        owner = msgspec.to_builtins(Owner.here())
        who = {"run": self._token, "builds": str(self._built), **owner}
        self._lock = Lock(destination, json.dumps(who).encode())
        self._is_whole = False
        self._is_mixed = False
        self._looking: Future[bool] | None = None

    @property
    def new(self) -> Path:
        """What is, or becomes, the destination."""
        return self._beside / self.destination.name if self._replaces else self.destination

    @property
    def _built(self) -> Path:
        """All that this run makes stands at or below it."""
        return self._beside if self._replaces else self.destination

    def __enter__(self) -> Self:
        begin_anew()
        is_taken = False
        try:
            self._take_lock()
            is_taken = True
            filesystem.forget(self.destination)
            if filesystem.exists(self.destination) and not (self.force and self._replaces):
                raise already_there(self.destination)
        except BaseException as error:
            # a signal may come when the lock stands, and this run has not heard of it yet
            if is_taken or not isinstance(error, Exception):
                self._withdraw()
            raise
        return self

    def _withdraw(self) -> None:
        """Where a run ends before it has begun: its lock goes, if it stands."""
        with uninterrupted():
            try:
                is_ours = self._lock.is_held()
            except OSError:  # nothing is known of it
                remaining.append(self._lock.place)
                return
            if is_ours:
                self._release()

    def _take_lock(self) -> None:
        """Keep other runs away.

        Raises:
            DestinationError: another run is there.
        """
        place = self._lock.place
        try:
            self._lock.take()
        except FileExistsError:
            with suppress(FileNotFoundError):
                raise claimed(place) from None
            raise DestinationError(
                f"another run was writing to '{self.destination}'",
                why=f"'{place}' has just gone",
                fix="look at the destination, and run the command again",
            ) from None
        except OSError as error:
            raise _not_made(place, error) from error

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with uninterrupted():
            if (
                self._is_whole and not self._replaces
            ):  # nothing is to be removed but the lock, if it is ours
                self._release()
                return
            self._linker.wait()
            try:
                is_ours = self._lock.is_held()
            except OSError:  # nothing is known: what was built stays, and its lock
                remaining.extend((self._built, self._lock.place))
                return
            if not is_ours:  # whoever took it builds there now
                return
            if self._is_mixed:  # nobody may read it, and the new one stands beside it
                return
            if self._replaces or not self._is_whole:
                self._remove()
            if self._built not in remaining:
                self._release()

    def _remove(self) -> None:
        """Remove what was built."""
        with suppress(OSError):
            if not self._replaces:
                filesystem.delete(companion_of(self.destination))
            filesystem.delete_below(self._built)
            filesystem.delete(self._built)
        if _stands(self._built):
            remaining.append(self._built)

    def _release(self) -> None:
        try:
            self._lock.release()
        except OSError:
            if _stands(self._lock.place):
                remaining.append(self._lock.place)

    def begun(self, placed: Placed) -> None:
        """Everything stands in its place that is not computed: said only where there is a journal."""

    def is_built(self) -> None:
        """Of what stands in a bucket, each object is known by its version."""

    def look_at_lock(self) -> None:
        """``commit`` comes next: see meanwhile that nobody has taken over."""
        self._looking = in_background(self._lock.is_held)

    def commit(self) -> None:
        """Write what says that the new checkpoint is whole, last, and innermost first.

        Raises:
            WriteError: what is replaced could not be replaced whole.
        """
        with uninterrupted():
            looking, self._looking = self._looking, None
            if not (self._lock.is_held() if looking is None else looking.result()):
                raise WriteError(
                    f"'{self.destination}' may be another run's by now",
                    why=f"'{self._lock.place}' is not what this run has made",
                    fix="see who removed it, and what stands at the destination; nothing of it was made whole",
                )
            marks = commit_marks(self.new, self._linker)
            for mark in marks:
                filesystem.write(mark, b"")
            if self._replaces:
                self._replace(marks)
            self._is_whole = True
            Completed.now(self.destination)

    def _replace(self, marks: list[Path]) -> None:
        """Put the new checkpoint, which is whole beside the old one, in its place.

        The old one's marks go first, the new one's come last: in between nobody takes a mixture for a checkpoint.
        """
        try:
            old = _objects(self.destination)
            for place in old:
                if place.name == COMMIT_MARK:
                    filesystem.delete(place)
            parent = self.destination.parent
            moved = {
                place: parent / place.relative_to(self._beside) for place in _objects(self._beside)
            }
            last = [(mark, moved.pop(mark)) for mark in marks]
            _each(filesystem.copy, moved.items())
            stale = [place for place in old if place not in moved.values()]
            _each(filesystem.delete, ((place,) for place in stale))
            for mark, target in last:
                filesystem.copy(mark, target)
        except (OSError, SurgeryError) as error:
            self._is_mixed = True
            raise WriteError(
                f"'{self.destination}' could not be replaced whole",
                why=getattr(error, "strerror", None) or str(error),
                fix=f"the new checkpoint is whole as '{self.new}': copy it to another name, or to its place, and then"
                f" remove '{self._lock.place}'",
            ) from error


def commit_marks(new: Path, linker: Linker) -> list[Path]:
    """Where marks go, innermost first: to where the source had some, and to what Orbax takes for one save.

    None, where a name is given at once.
    """
    if filesystem.renames(new):
        return []
    marks = set(linker.marks)
    location = locate(str(new), staging=True)
    if location.shape != "file":
        assert location.step_directory is not None
        if filesystem.is_folder(location.step_directory):
            marks.add(location.step_directory / COMMIT_MARK)
    return sorted(marks, key=lambda mark: (-len(mark.parts), str(mark)))


def is_whole(place: Path) -> bool:
    """True if a run that built what stands there, at its destination, has come to its end.

    Its name is given at once where that can be; else the mark is there that comes last. Of a single file in a bucket
    nothing says so.
    """
    if filesystem.renames(place):
        return filesystem.is_taken(place)
    try:
        location = locate(str(place), staging=True)
    except SurgeryError:
        return False
    return filesystem.is_file((location.step_directory or place) / COMMIT_MARK)


def companion_of(destination: Path) -> Path:
    """Where the record of a checkpoint stands that is a single file."""
    return destination.with_name(f"{destination.name}.surgery.json")


def _stands(place: Path) -> bool:
    """False only where that is known."""
    filesystem.forget(place)
    try:
        return filesystem.exists(place)
    except OSError:
        return True


def _not_made(place: Path, error: OSError) -> WriteError:
    return WriteError(
        f"'{place}' cannot be made",
        why=error.strerror or str(error),
        fix=getattr(error, "fix", ""),
    )


def _objects(place: Path) -> list[Path]:
    """The objects at and below a place."""
    filesystem.forget(place)
    return [path_at(found) for found in filesystem.files_below(place)]


def _each(request: Callable[..., None], arguments: Iterable[tuple[Path, ...]]) -> None:
    """Make many requests, many at once."""
    pending = list(arguments)
    if pending:
        with Threads(filesystem.requests_at_once(pending[0][0])) as pool:
            for _ in pool.map(lambda given: request(*given), pending):
                pass
