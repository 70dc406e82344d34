"""The new checkpoint where nothing can be renamed: built under its own name, whole once its mark is there."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from surgery_cli.errors import DestinationError, SurgeryError, WriteError
from surgery_cli.inputs.buckets import BucketPath, path_at, removal
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.links import Linker
from surgery_cli.store.filesystem.listing import COMMIT_MARK, STAGING_MARK
from surgery_cli.store.locate.location import locate
from surgery_cli.store.write.destination import already_there, lock_of
from surgery_cli.store.write.journal import Journal, Placed
from surgery_cli.store.write.owners import Owner
from surgery_cli.store.write.staging import begin_anew, completed, remaining, uninterrupted


class BucketStaging:
    """As ``Staging``, in a bucket: inside, ``new`` is where to build; ``commit`` makes it whole; else nothing is left.

    An object that only one of two runs can make keeps the others away. Readers, Orbax among them, take what is built
    for unfinished until ``commit_success.txt`` is there, and that is written last. What ``force`` replaces stands
    until the new checkpoint is whole beside it.
    """

    journal: Journal | None = None

    def __init__(self, destination: BucketPath, linker: Linker, *, force: bool = False) -> None:
        self.destination = destination
        self.force = force
        self._linker = linker
        self._lock = lock_of(destination)
        self._beside = destination.with_name(
            f".{destination.name}{STAGING_MARK}{secrets.token_hex(4)}"
        )
        self._replaces = False
        self._keep = False

    @property
    def new(self) -> Path:
        """What is, or becomes, the destination."""
        return self._beside / self.destination.name if self._replaces else self.destination

    def __enter__(self) -> Self:
        begin_anew()
        self._take_lock()
        try:
            filesystem.forget(self.destination)
            self._replaces = filesystem.exists(self.destination)
            if self._replaces and not self.force:
                raise already_there(self.destination)
        except BaseException:
            filesystem.delete(self._lock)
            raise
        return self

    def _take_lock(self) -> None:
        """Make the object that says who writes here; an answer that was lost may have made it all the same.

        Raises:
            DestinationError: another run has it.
        """
        owner = msgspec.to_builtins(Owner.here())
        content = json.dumps({"run": secrets.token_hex(8), **owner}).encode()
        try:
            with filesystem.create(self._lock) as file:
                file.write(content)
        except FileExistsError:
            filesystem.forget(self._lock)
            with suppress(FileNotFoundError):
                found = filesystem.read(self._lock)
                if found == content:
                    return
                raise DestinationError(
                    f"another run is writing to '{self.destination}'",
                    why=f"it has made '{self._lock}': {found.decode(errors='replace')}",
                    fix="wait for it, or name another destination; if it was killed, remove what it left:"
                    f" `{removal(self._lock)}`, and '{self.destination}'",
                ) from None
            raise DestinationError(
                f"another run was writing to '{self.destination}'",
                why=f"'{self._lock}' has just gone",
                fix="look at the destination, and run the command again",
            ) from None
        except OSError as error:
            raise WriteError(
                f"'{self._lock}' cannot be made",
                why=error.strerror or str(error),
                fix=getattr(error, "fix", ""),
            ) from error

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with uninterrupted():
            if not self._keep:
                self._remove()
            with suppress(OSError):
                filesystem.delete(self._lock)
            filesystem.forget(self._lock)
            if filesystem.exists(self._lock):
                remaining.append(self._lock)

    def _remove(self) -> None:
        """Remove what was built, unless it is the destination now."""
        if not self._replaces:
            with suppress(OSError):
                filesystem.delete(_companion(self.destination))
        place = self._beside if self._replaces else self.destination
        with suppress(OSError):
            filesystem.delete_below(place)
            filesystem.delete(place)
        filesystem.forget(place)
        if filesystem.exists(place):
            remaining.append(place)

    def begun(self, placed: Placed) -> None:
        """Everything stands in its place that is not computed: said only where there is a journal."""

    def commit(self) -> None:
        """Write what says that the new checkpoint is whole, last, and innermost first.

        Raises:
            WriteError: what is replaced could not be replaced whole.
        """
        with uninterrupted():
            marks = commit_marks(self.new, self._linker)
            for mark in marks:
                filesystem.write(mark, b"")
            if self._replaces:
                self._replace(marks)
            else:
                self._keep = True
            completed.append(self.destination)

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
            self._keep = True
            raise WriteError(
                f"'{self.destination}' could not be replaced whole",
                why=getattr(error, "strerror", None) or str(error),
                fix=f"the new checkpoint is whole as '{self.new}': copy it to its place, or to another name",
            ) from error


def commit_marks(new: Path, linker: Linker) -> list[Path]:
    """Where marks go, innermost first: to where the source had some, and to what Orbax takes for one save.

    None, where a name says that something is whole.
    """
    if not filesystem.needs_commit_mark(new):
        return []
    marks = set(linker.marks)
    location = locate(str(new), staging=True)
    if location.shape != "file":
        assert location.step_directory is not None
        if filesystem.is_folder(location.step_directory):
            marks.add(location.step_directory / COMMIT_MARK)
    return sorted(marks, key=lambda mark: (-len(mark.parts), str(mark)))


def _companion(destination: Path) -> Path:
    return destination.with_name(f"{destination.name}.surgery.json")


def _objects(place: Path) -> list[Path]:
    """The objects at and below a place."""
    filesystem.forget(place)
    return [path_at(found) for found in filesystem.files_below(place)]


def _each(request: Callable[..., None], arguments: Iterable[tuple[Path, ...]]) -> None:
    """Make many requests, many at once."""
    pending = list(arguments)
    if pending:
        with ThreadPoolExecutor(filesystem.requests_at_once(pending[0][0])) as pool:
            for _ in pool.map(lambda given: request(*given), pending):
                pass
