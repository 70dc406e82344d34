"""Who may read a new checkpoint: whoever may read the source, file by file and directory by directory."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.store import filesystem

_FILE_BITS = 0o666


def umask() -> int:
    """The process's umask, which only setting it tells."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def let_owner_write(folder: Path) -> None:
    """See that the owner may make and remove names in a folder, and in all below it."""
    for prefix, _ in filesystem.below(folder):
        place = folder / prefix
        mode = stat.S_IMODE(place.stat().st_mode)
        if mode & stat.S_IRWXU != stat.S_IRWXU:
            place.chmod(mode | stat.S_IRWXU)


def follow_modes(
    new: Path,
    origin: Path,
    *,
    renamed: Mapping[str, str] = {},
    donors: Iterable[Path] = (),
    beside: Iterable[Path] = (),
) -> None:
    """Give everything in ``new`` the mode of what stands in the same place of ``origin``.

    What has no counterpart may be read by those who may read all files beside it. Hard links have the source's mode.

    Args:
        new: The new checkpoint, a file or a directory.
        origin: The source that it was made from.
        renamed: Names of ``new`` that are other ones in ``origin``.
        donors: Files and directories from which leaves were taken; nobody gets to read more than they let.
        beside: Files that stand beside ``new`` and speak of it.
    """
    if isinstance(new, BucketPath):  # buckets say for all objects in them who may read
        return
    allowed = 0o777
    for donor in donors:
        allowed &= _of_directory(filesystem.status(donor).st_mode) | stat.S_IRWXU
    follower = _Follower(renamed, allowed)
    mode = filesystem.status(origin).st_mode
    if new.is_dir():
        is_like = stat.S_ISDIR(mode)
        follower.directory(new, origin if is_like else None, _of_directory(mode))
    else:
        follower.set_file(new, mode & _FILE_BITS)
    for file in beside:
        follower.set_file(file, new.stat().st_mode & _FILE_BITS)


def _of_directory(mode: int) -> int:
    """The permissions of a directory that is like something of ``mode``: who may read may enter."""
    if stat.S_ISDIR(mode):
        return stat.S_IMODE(mode) & ~stat.S_ISUID
    return mode & _FILE_BITS | (mode & 0o444) >> 2


class _Follower:
    def __init__(self, renamed: Mapping[str, str], allowed: int) -> None:
        self.renamed = renamed
        self.allowed = allowed

    def directory(self, new: Path, like: Path | None, mode: int) -> None:
        """Follow below a directory, then for itself; ``like`` is its counterpart, ``mode`` its own if it has none."""
        if like is not None:
            mode = _of_directory(filesystem.status(like).st_mode)
        of_new_files: int | None = None
        for entry in list(os.scandir(new)):
            counterpart = like and like / self.renamed.get(entry.name, entry.name)
            if entry.is_dir(follow_symlinks=False):
                is_like = counterpart is not None and filesystem.is_folder(counterpart)
                self.directory(Path(entry.path), counterpart if is_like else None, mode)
            elif entry.stat(follow_symlinks=False).st_nlink == 1:
                if counterpart is not None and filesystem.is_file(counterpart):
                    self.set_file(
                        Path(entry.path), stat.S_IMODE(filesystem.status(counterpart).st_mode)
                    )
                    continue
                if of_new_files is None:
                    of_new_files = _shared_mode(like, mode & _FILE_BITS)
                self.set_file(Path(entry.path), of_new_files)
        kept = new.stat().st_mode & stat.S_ISGID
        _set(new, mode & (self.allowed | stat.S_ISGID | stat.S_ISVTX) | stat.S_IRWXU | kept)

    def set_file(self, file: Path, mode: int) -> None:
        _set(file, mode & self.allowed & 0o777 | stat.S_IRUSR)


def _shared_mode(folder: Path | None, otherwise: int) -> int:
    """What all files of a folder allow, to be written to by their owner."""
    standing = filesystem.entries(folder) if folder else []
    modes = [filesystem.status(entry.place).st_mode for entry in standing if entry.is_file]
    shared = otherwise
    for at, mode in enumerate(modes):
        shared = mode & _FILE_BITS & (shared if at else _FILE_BITS)
    return shared | stat.S_IWUSR


def _set(path: Path, mode: int) -> None:
    if stat.S_IMODE(path.stat().st_mode) != mode:
        with contextlib.suppress(PermissionError):  # a filesystem that keeps no modes
            path.chmod(mode)
