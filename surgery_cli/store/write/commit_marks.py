"""Marks that say where nothing can be renamed that a result is whole: where they stand, and whether they do."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from surgery_cli.errors import SurgeryError, UnseenError
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.bucket_locks import said_in
from surgery_cli.store.filesystem.links import Linker
from surgery_cli.store.filesystem.names import name_of_record, names_of_record
from surgery_cli.store.filesystem.protocol import COMMIT_MARK
from surgery_cli.store.locate.location import locate


def commit_marks(new: Path, linker: Linker) -> list[Path]:
    """Where marks go, innermost first: to where the source had some, and to what Orbax takes for one save.

    Where it asks for marks, each item is one as well. None, where a name is given at once.
    """
    if filesystem.renames(new):
        return []
    marks = set(linker.marks)
    location = locate(str(new), staging=True)
    if location.shape != "file":
        assert location.step_directory is not None
        if filesystem.is_folder(location.step_directory):
            marks.add(location.step_directory / COMMIT_MARK)
        if location.folder_of_items is not None and filesystem.needs_commit_mark(new):
            items = (*location.items.values(), *location.other_items.values())
            marks.update(item / COMMIT_MARK for item in items)
    return innermost_first(marks)


def innermost_first(objects: Iterable[Path]) -> list[Path]:
    """The marks among objects, in the order in which they may come: none says that all is whole before it is."""
    marks = (place for place in objects if place.name == COMMIT_MARK)
    return sorted(marks, key=lambda mark: (-len(mark.parts), str(mark)))


def without_marks(objects: Iterable[Path]) -> list[Path]:
    """The objects but for what says of others that they are whole: copies of a lock, which come last."""
    return [place for place in objects if place.name != COMMIT_MARK]


def is_whole(place: Path) -> bool:
    """True if a run that built what stands there, at its destination, has come to its end.

    Its name is given at once where that can be; else the mark is there that comes last. Of a single file in a bucket
    nothing says so.
    """
    if filesystem.renames(place):
        return filesystem.is_taken(place)
    mark = mark_of(place)
    return mark is not None and filesystem.is_file(mark)


def is_unfinished(place: Path) -> bool:
    """True of what only a mark makes whole, and has none: no single file."""
    needs_mark = filesystem.needs_commit_mark(place) and not filesystem.is_file(place)
    return needs_mark and not is_whole(place)


def mark_of(place: Path) -> Path | None:
    """Where the mark stands that comes last, if it does; None where there is nothing that could have one."""
    try:
        location = locate(str(place), staging=True)
    except UnseenError:  # a mark may be there
        raise
    except SurgeryError:
        return None
    return (location.step_directory or place) / COMMIT_MARK


class _Run(msgspec.Struct):
    """What a lock says, or the mark that is a copy of one: whose it is, or what is left of whom its owner removes."""

    run: str
    removes: str = ""


def is_marked(destination: Path, lock: bytes) -> bool:
    """True if the run with this lock has come to its end, or the one whose leftovers it removes: its mark says so."""
    mark = mark_of(destination)
    content = None if mark is None else filesystem.read_if_any(mark)
    if content is None or content == lock:
        return content is not None
    marked, locked = said_in(content, _Run), said_in(lock, _Run)
    return marked is not None and locked is not None and marked.run == locked.removes


def companion_of(destination: Path) -> Path:
    """Where the record of a checkpoint stands that is a single file."""
    return destination.with_name(name_of_record(destination.name))


def record_beside(place: Path) -> Path:
    """Where the record of a single file, or of a bare directory, stands beside it; else where it would."""
    found = [place.with_name(name) for name in names_of_record(place.name)]
    return next((record for record in found if filesystem.is_file(record)), found[0])


class _Record(msgspec.Struct):
    """What every record says that a run has written."""

    surgery: str
    draft: str


def is_record(place: Path) -> bool:
    """True for a record that a run has written."""
    content = filesystem.read_if_any(place)
    return content is not None and said_in(content, _Record) is not None


def older_records(destination: Path) -> list[Path]:
    """Records under names of older releases, where one of today stands beside; what else is called so is not ours."""
    if not filesystem.is_file(companion_of(destination)):
        return []
    others = names_of_record(destination.name)[1:]
    return [place for place in map(destination.with_name, others) if is_record(place)]
