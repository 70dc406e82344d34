"""The disk of this machine, and whatever is mounted like one."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from io import BufferedReader
from pathlib import Path
from stat import S_ISREG
from typing import Any, BinaryIO

from surgery_cli.errors import CheckpointError
from surgery_cli.inputs.regular_files import refuse_special
from surgery_cli.store.filesystem.protocol import Documents, Entry, Place

_FICLONE = 0x40049409


class LocalDisk:
    """Files by the system's own calls; see ``FileSystem``. Nothing is remembered: the system does that."""

    needs_commit_mark = False
    renames = True
    at_once = 1

    def forget(self, place: Place, *, but_begun: bool = False) -> None:
        pass

    def begin(self, place: Place, documents: Documents) -> None:
        """Nothing: to look takes no time."""

    def look_ahead(self, place: Place, *, around: bool = False) -> None:
        """Nothing: to look takes no time."""

    def fetch(self, file: Place) -> None:
        """Nothing: to read takes no time."""

    def fetch_made(self, folder: Place, documents: Documents) -> None:
        """Nothing: to read takes no time."""

    def entries(self, folder: Place) -> list[Entry]:
        with os.scandir(folder) as found:
            return [_LocalEntry(entry) for entry in sorted(found, key=lambda e: e.name)]

    def below(self, folder: Place) -> Iterator[tuple[str, list[Entry]]]:
        check_link(folder)
        waiting = [("", os.fspath(folder))]
        while waiting:
            prefix, place = waiting.pop()
            entries = self.entries(place)
            yield prefix, entries
            for entry in reversed(entries):
                if entry.is_folder:
                    if entry.is_link:
                        check_link(entry.place)
                    waiting.append((f"{prefix}{entry.name}/", entry.place))

    def status(self, place: Place) -> os.stat_result:
        return os.stat(place)

    status_now = status

    def real(self, place: Place) -> Path:
        return Path(os.path.realpath(place))  # a circle of links is an error of `Path.resolve`

    def absolute(self, path: Path) -> Path:
        """See the package: what a `..` behind a link means, only the disk knows."""
        parts = path.parts
        if ".." not in parts:
            return Path(os.path.abspath(path))
        behind = len(parts) - parts[::-1].index("..")
        return Path(os.path.realpath(Path(*parts[:behind])), *parts[behind:])

    def is_link(self, place: Place) -> bool:
        return os.path.islink(place)

    def open(self, place: Place) -> BufferedReader:
        if not S_ISREG(os.stat(place).st_mode):
            refuse_special(Path(place))
        return open(place, "rb")

    def expect(self, place: Place, ranges: Iterable[tuple[int, int]]) -> None:
        """Nothing: a read is no request."""

    def create(self, place: Place) -> BinaryIO:
        return open(place, "xb")

    def replace(self, place: Place) -> BinaryIO:
        self.delete(place)
        return self.create(place)

    def put(self, place: Place, content: bytes, *, exclusively: bool = False) -> int:
        with self.create(place) if exclusively else self.replace(place) as file:
            file.write(content)
        return self.status(place).st_ino

    def copy(self, source: Place, target: Place) -> None:
        refuse_special(Path(source))
        shutil.copy2(source, target)

    def clone(self, source: Place, target: Place) -> None:
        if sys.platform != "linux":
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        with open(source, "rb") as reader, open(target, "xb") as writer:
            fcntl.ioctl(writer.fileno(), _FICLONE, reader.fileno())
        shutil.copystat(source, target)

    def link(self, source: Place, target: Place) -> None:
        os.link(source, target)

    def delete(self, place: Place) -> None:
        Path(place).unlink(missing_ok=True)

    def delete_as_found(self, place: Place) -> bool:
        self.delete(place)
        return True

    def replace_as_found(self, place: Place, content: bytes) -> None:
        Path(place).write_bytes(content)

    def delete_below(self, folder: Place) -> None:
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            pass  # by somebody else meanwhile
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
            if os.path.lexists(folder):
                raise

    def make_folder(self, folder: Place) -> None:
        os.mkdir(folder)

    def delete_folder(self, folder: Place) -> None:
        os.rmdir(folder)

    def kvstore(self, folder: Place) -> dict[str, Any]:
        return {"driver": "file", "path": f"{os.fspath(folder)}/"}


class _LocalEntry:
    """What a listing tells of an entry; its size costs a look at the file."""

    __slots__ = ("_entry", "name", "place")

    def __init__(self, entry: os.DirEntry[str]) -> None:
        self._entry = entry
        self.name = entry.name
        self.place = entry.path

    @property
    def is_file(self) -> bool:
        return self._entry.is_file()

    @property
    def is_folder(self) -> bool:
        return self._entry.is_dir()

    @property
    def is_link(self) -> bool:
        return self._entry.is_symlink()

    @property
    def size(self) -> int:
        return self._entry.stat().st_size


def own_status(place: Place) -> os.stat_result:
    """Of what stands there itself, be it a link. Raises FileNotFoundError."""
    return os.lstat(place)


def let_cached_go(place: Place, *, written: bool = False) -> None:
    """Tell the system that nobody here reads a file again; what is on the disk of it leaves the cache.

    ``written``: what of it is on its way there is waited for, and leaves as well.
    """
    if sys.platform == "linux":
        descriptor = os.open(place, os.O_RDONLY)
        try:
            if written:
                os.fdatasync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def check_link(place: Place) -> None:
    """Refuse a symbolic link to a folder around it: to follow it had no end.

    Raises:
        CheckpointError: ``place`` is such a link.
    """
    path = Path(place)
    if not path.is_symlink() or not path.exists():
        return
    real = path.resolve()
    for around in Path(os.path.abspath(path)).parents:
        if around.resolve() == real:
            raise CheckpointError(
                f"the symbolic link '{path}' leads in a circle",
                why=f"it leads to '{around}', in which it stands",
                fix="remove the link, or name a copy of the checkpoint without it",
            )
