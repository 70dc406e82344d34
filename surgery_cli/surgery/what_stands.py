"""The files of a result as its run left them: who calls it done later sees whether they are there, and those."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.proof.record_places import recorded_place
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.fsspec_service import md5_of
from surgery_cli.store.filesystem.listing import files_below
from surgery_cli.store.filesystem.protocol import COMMIT_MARK
from surgery_cli.store.filesystem.told_digests import MD5, told_md5
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.surgery.file_versions import is_said_of
from surgery_cli.words.lists import quoted

_SMALL: Final = 1 << 16
"""Of files of so many bytes at most the content is looked at on a disk; in a bucket a listing tells of all of them."""

_SHA256: Final = "sha256:"


class _File(NamedTuple):
    path: Path
    size: int
    told: str
    """The digest that the service tells; '' on a disk."""


def files_standing(written: Checkpoint) -> dict[str, str]:
    """Each file of the step, but marks and records, by its path from there: its size, and what tells its content."""
    return {name: _mark(file) for name, file in _files_of(written).items()}


def _files_of(written: Checkpoint) -> dict[str, _File]:
    place = recorded_place(written)
    if not filesystem.is_folder(place):
        status = filesystem.status(place)
        return {place.name: _File(place, status.st_size, told_md5(place, status))}
    found = sorted(files_below(place), key=lambda one: one[0])
    return {
        name: _File(place / name, entry.size, told_md5(place, entry))
        for name, entry in found
        if not is_said_of(name)
    }


def _mark(file: _File) -> str:
    is_read = file.size <= _SMALL and not isinstance(file.path, BucketPath)
    return f"{file.size} {_sha256(file.path) if is_read else file.told}".rstrip()


def _sha256(file: Path) -> str:
    return f"{_SHA256}{hashlib.sha256(filesystem.read(file)).hexdigest()}"


def other_files(before: Mapping[str, str], written: Checkpoint) -> str | None:
    """What is said of files that stood there and do no longer, or not as they did; None if all do."""
    now = _files_of(written)
    if unmarked := _unmarked(written):
        by = "that item by its path" if len(unmarked) == 1 else "those items by their paths"
        return f"{quoted(unmarked, 3, word='and')} {_are(unmarked)} missing: Orbax does not restore {by} without"
    if gone := [name for name in before if name not in now]:
        return f"of what it was made with, {quoted(gone, 3, word='and')} {_are(gone)} missing"
    other = [name for name, mark in before.items() if not _is_so(now[name], mark)]
    return (
        f"{quoted(other, 3, word='and')} {_are(other)} not what it was made with" if other else None
    )


def _unmarked(written: Checkpoint) -> list[str]:
    """The marks that are missing of items, where Orbax takes none for whole without."""
    place, location = recorded_place(written), written.location
    if location.folder_of_items is None or not filesystem.needs_commit_mark(place):
        return []
    items = (*location.items.values(), *location.other_items.values())
    marks = (item / COMMIT_MARK for item in items)
    return [str(mark.relative_to(place)) for mark in marks if not filesystem.is_file(mark)]


def _is_so(file: _File, mark: str) -> bool:
    """Of what came here from elsewhere, or in parts, the size may be all that can be held against the mark."""
    return all(_agrees(file, said) for said in mark.split())


def _agrees(file: _File, said: str) -> bool:
    if said.isdecimal():
        return said == str(file.size)
    if isinstance(file.path, BucketPath):
        return said.startswith(_SHA256) or file.told in ("", said)
    if said.startswith(MD5):
        return file.size > _SMALL or said == f"{MD5}{md5_of(filesystem.read(file.path))}"
    return file.size <= _SMALL and said == _sha256(file.path)


def _are(names: list[str]) -> str:
    return "are" if len(names) > 1 else "is"
