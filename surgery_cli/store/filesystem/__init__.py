"""Files of checkpoints, by their paths, wherever they lie: the one way in which the store and proofs touch them.

``protocol`` says what a service must be able to do; ``local_disk`` does it, and so does ``bucket`` for every service
that ``object_service`` describes. What else stands here is about disks alone:
links and modes, memory, and how what was built gets its name (``durability``).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from io import BufferedReader
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Any, BinaryIO, Final

from surgery_cli.inputs.buckets import STARTS
from surgery_cli.store.filesystem.bucket import Buckets
from surgery_cli.store.filesystem.interruptions import Threads
from surgery_cli.store.filesystem.local_disk import LocalDisk
from surgery_cli.store.filesystem.object_files import read_range
from surgery_cli.store.filesystem.protocol import Documents, Entry, FileSystem, Place, Status
from surgery_cli.store.filesystem.services import SERVICES

_DISK: Final = LocalDisk()
_SERVICES: Final[dict[str, FileSystem]] = {
    f"{scheme}://": Buckets(service) for scheme, service in SERVICES.items()
}
"""By the begin of their paths, which is one of ``inputs.buckets.STARTS``."""
_LARGEST_FILE: Final = 1 << 60
"""No file has a byte there, in bytes; damaged ones name places that the system does not take for a number."""


def system_of(place: Place) -> FileSystem:
    """The disk or service that holds a path."""
    text = os.fspath(place)
    return _SERVICES[text[: text.index("//") + 2]] if text.startswith(STARTS) else _DISK


def forget(place: Place, *, but_begun: bool = False) -> None:
    """What was seen at and below a place is looked up again: for every look that asks whether something has changed;
    ``but_begun``: whether it has since the command began.
    """
    system_of(place).forget(place, but_begun=but_begun)


def look_ahead(place: Place, *, around: bool = False) -> None:
    """What stands at a place will be asked for, and in the folder ``around`` it: where that takes requests, all at
    once, they are made now.
    """
    system_of(place).look_ahead(place, around=around)


def fetch(files: Iterable[Place]) -> None:
    """These small files, those of them that are there, will be read: where that takes requests, all at once, now."""
    for place in files:
        system_of(place).fetch(place)


def fetch_made(folder: Place, documents: Documents) -> None:
    """As ``fetch``, of the ``documents`` among what this run has made in a folder: that is known without a look."""
    system_of(folder).fetch_made(folder, documents)


def needs_commit_mark(place: Place) -> bool:
    """True where Orbax takes a save for finished only once its ``commit_success.txt`` is there."""
    return system_of(place).needs_commit_mark


def renames(place: Place) -> bool:
    """True where what is built can be given its name at once, whole; else a mark is written last."""
    return system_of(place).renames


def entries(folder: Place) -> list[Entry]:
    """What stands in a folder, by name."""
    return system_of(folder).entries(folder)


def names(folder: Place) -> list[str]:
    """The names of what stands in a folder, sorted."""
    return [entry.name for entry in entries(folder)]


def entries_if_any(folder: Place) -> list[Entry]:
    """As ``entries``; nothing stands in what is no folder."""
    return entries(folder) if is_folder(folder) else []


def below(folder: Place) -> Iterator[tuple[str, list[Entry]]]:
    """As ``entries`` for a folder and all folders below it, by their paths from it (with a slash at the end)."""
    return system_of(folder).below(folder)


def files_below(place: Place) -> list[str]:
    """A file itself, or all files in a folder and below it."""
    if is_file(place):
        return [os.fspath(place)]
    return [entry.place for _, inside in below(place) for entry in inside if entry.is_file]


def status(place: Place) -> Status:
    """What is known of a file without reading it. Raises FileNotFoundError."""
    return system_of(place).status(place)


def status_now(place: Place) -> Status:
    """As ``status``, looked up anew."""
    return system_of(place).status_now(place)


def size(place: Place) -> int:
    return status(place).st_size


def _mode(place: Place) -> int:
    """Zero for what is not there, or cannot be."""
    try:
        return status(place).st_mode
    except OSError as error:
        if error.errno in _NOT_THERE:
            return 0
        raise
    except ValueError:  # a null character
        return 0


_NOT_THERE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def is_file(place: Place) -> bool:
    return S_ISREG(_mode(place))


def is_folder(place: Place) -> bool:
    return S_ISDIR(_mode(place))


def exists(place: Place) -> bool:
    """False for a link that leads nowhere."""
    return _mode(place) != 0


def is_link(place: Place) -> bool:
    return system_of(place).is_link(place)


def is_taken(place: Place) -> bool:
    """True if something stands under the name, be it a link that leads nowhere."""
    return is_link(place) or exists(place)


def real(place: Place) -> Path:
    """The one spelling of a place, whatever links lead to it."""
    return system_of(place).real(place)


def absolute(path: Path) -> Path:
    """The path from its root on, without `..`, for which links in front of one are followed, and no others."""
    return _DISK.absolute(path) if system_of(path) is _DISK else path


def reader(place: Place) -> BufferedReader:
    """A file to read ranges of. Raises a CheckpointError if it is no regular file."""
    return system_of(place).open(place)


def read(place: Place, start: int = 0, count: int = -1) -> bytes:
    """The bytes of a file, or ``count`` of them from ``start`` on (fewer where it ends)."""
    with reader(place) as file:
        if not 0 <= start <= _LARGEST_FILE:
            return b""
        if start:
            file.seek(start)
        # past its buffer, for whose sake the end of what is asked for would be another request
        return file.read() if count < 0 else read_range(file.raw, count)


def read_if_any(place: Place) -> bytes | None:
    """The bytes of a file; None if there is none."""
    return read(place) if is_file(place) else None


def expect(place: Place, ranges: Iterable[tuple[int, int]]) -> None:
    """These ranges of a file will be read, in any order; where reads are requests, neighbours come in one."""
    system_of(place).expect(place, ranges)


def create(place: Place) -> BinaryIO:
    """A new file, to be written once. Raises FileExistsError where one stands."""
    return system_of(place).create(place)


def write(place: Place, content: bytes | Iterable[bytes]) -> None:
    """Write a file in the place of what stands there, never through a link to it."""
    with system_of(place).replace(place) as file:
        for piece in (content,) if isinstance(content, bytes) else content:
            file.write(piece)


def replace_whole(place: Path, content: bytes) -> None:
    """As ``write``; on a disk whoever looks, after a cut too, finds the old content or the new."""
    if system_of(place) is not _DISK:
        write(place, content)
        return
    from surgery_cli.store.filesystem.durability import put_durably, rename  # only to write

    draft = place.with_name(f"{place.name}.new")
    delete(draft)
    put_durably(draft, content)
    rename(draft, place)


def put(place: Place, content: bytes, *, exclusively: bool = False) -> int:
    """Make or replace a file; a service holds it against the digest that comes with it.

    Returns what ``status`` says of it as ``st_ino`` from then on. ``exclusively``: raises FileExistsError where one
    stands.
    """
    return system_of(place).put(place, content, exclusively=exclusively)


def copy(source: Place, target: Place) -> None:
    """Copy a file; within one service by itself."""
    system = system_of(source)
    if system is system_of(target):
        system.copy(source, target)
        return
    with system.open(source) as file:
        write(target, iter(lambda: file.read(_PIECE_BYTES), b""))


_PIECE_BYTES: Final = 4 << 20


def requests_at_once(place: Place) -> int:
    """How many requests are under way at once where many are made."""
    return system_of(place).at_once


def delete(place: Place) -> None:
    """Delete a file or link; what is not there is let be."""
    system_of(place).delete(place)


def delete_all(places: Iterable[Place]) -> None:
    """As ``delete``, for many: where each is a request, many at once, and none for what is not there."""
    standing = [place for place in places if is_taken(place)]
    at_once = requests_at_once(standing[0]) if standing else 1
    with Threads(at_once, thread_name_prefix="surgery-delete") as pool:
        for _ in pool.map(delete, standing):
            pass


def replace_as_found(place: Place, content: bytes) -> None:
    """Put a file in the place of the one that was seen there last; FileExistsError where that is another by now."""
    system_of(place).replace_as_found(place, content)


def delete_as_found(place: Place) -> bool:
    """Delete a file; False if another one has come into its place since it was looked at, and stays."""
    return system_of(place).delete_as_found(place)


def delete_below(folder: Place) -> None:
    """Delete a folder with everything in it; what is not there is let be."""
    system_of(folder).delete_below(folder)


def make_folder(folder: Place) -> None:
    """Raises FileExistsError where something stands."""
    system_of(folder).make_folder(folder)


def make_folders(folder: Path) -> None:
    """Make a folder, and those above it, where they are not there."""
    try:
        make_folder(folder)
    except FileNotFoundError:
        make_folders(folder.parent)
        make_folders(folder)
    except FileExistsError:
        if not is_folder(folder):
            raise


def delete_folder(folder: Place) -> None:
    """Raises an OSError if something stands in it."""
    system_of(folder).delete_folder(folder)


def kvstore(folder: Place) -> dict[str, Any]:
    """How TensorStore is told of the folder."""
    return system_of(folder).kvstore(folder)
