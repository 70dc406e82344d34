"""What stands at a place, told from names, sizes and times alone: how much, and when somebody changed it last."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

import msgspec

from surgery_cli.examination.temporary_names import writer_of
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.protocol import Place, Status


class Footprint(msgspec.Struct, frozen=True, kw_only=True):
    """The files at a place. ``digest`` is another one as soon as any of them changes, comes or goes."""

    bytes: int
    bytes_counted: int
    """Without files that were counted before under other names."""
    files: int
    changed_ns: int
    """When something was changed last, since 1970; 0 where that is not known."""
    digest: str
    unnamed: dict[str, tuple[str, int]]
    """Files that have not got their names, by their paths: who writes them, and their bytes."""


NOTHING_SEEN: Final = Footprint(
    bytes=0, bytes_counted=0, files=0, changed_ns=0, digest="", unnamed={}
)
"""Of what nobody may look into."""


def footprint(place: Path, counted: set[tuple[int, int]]) -> Footprint | None:
    """Look at every file; those ``counted`` before, by device and inode, are not counted again. None if it is gone."""
    filesystem.forget(place)
    found = _Sum(counted)
    try:
        if filesystem.is_file(place):
            found.add("", place, place.name)
            return found.result()
        if filesystem.renames(place):
            found.see(filesystem.status(place))
        for prefix, entries in filesystem.below(place):
            for entry in entries:
                if entry.is_file:
                    found.add(prefix + entry.name, entry.place, entry.name)
                elif entry.is_folder and filesystem.renames(place):
                    found.see(filesystem.status(entry.place))
    except (FileNotFoundError, NotADirectoryError):
        return None if not filesystem.is_taken(place) else found.result(is_moving=True)
    return found.result()


class _Sum:
    def __init__(self, counted: set[tuple[int, int]]) -> None:
        self._counted = counted
        self._record = hashlib.sha256()
        self._bytes = self._bytes_counted = self._files = self._changed_ns = 0
        self._unnamed: dict[str, tuple[str, int]] = {}

    def add(self, path: str, place: Place, name: str) -> None:
        status = filesystem.status(place)
        line = f"{path}\0{status.st_size}\0{status.st_mtime_ns}\0{status.st_ino}\n"
        self._record.update(line.encode(errors="surrogateescape"))
        self._files += 1
        self._bytes += status.st_size
        if (key := (status.st_dev, status.st_ino)) not in self._counted:
            self._counted.add(key)
            self._bytes_counted += status.st_size
        self.see(status)
        if (whose := writer_of(name)) is not None:
            self._unnamed[path] = (whose, status.st_size)

    def see(self, status: Status) -> None:
        # tools that copy set the time of the content back, and nobody sets that of the inode
        changed = max(status.st_mtime_ns, getattr(status, "st_ctime_ns", 0))
        self._changed_ns = max(self._changed_ns, changed)

    def result(self, *, is_moving: bool = False) -> Footprint:
        self._record.update(f"{self._changed_ns}{is_moving}".encode())
        return Footprint(
            bytes=self._bytes,
            bytes_counted=self._bytes_counted,
            files=self._files,
            changed_ns=self._changed_ns,
            digest=self._record.hexdigest(),
            unnamed=self._unnamed,
        )
