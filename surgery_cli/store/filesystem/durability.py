"""How what was built on a disk gets its name, whole or not at all, and lasts: renames and fsync."""

from __future__ import annotations

import ctypes
import errno
import os
from contextlib import suppress
from pathlib import Path

from surgery_cli.store.filesystem.protocol import Place

_AT_FDCWD = -100
_RENAME_NOREPLACE, _RENAME_EXCHANGE = 1, 2
_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP)


def rename_exclusively(source: Path, target: Path) -> None:
    """Rename, failing with FileExistsError if ``target`` exists; ``target`` appears whole on every system.

    Where the system cannot refuse in the same step, only an empty directory of the same instant would be replaced; or,
    where it has no hard links either, a file of the same instant.
    """
    if _renameat2(source, target, _RENAME_NOREPLACE):
        return
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    if source.is_dir():
        _rename_folder(source, target)
        return
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        source.rename(target)
        return
    with suppress(OSError):  # the name is given: the other one goes with the staging directory
        source.unlink()


def _rename_folder(source: Path, target: Path) -> None:
    """Rename a directory, which the system refuses where files, or directories with something in them, stand."""
    try:
        source.rename(target)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.ENOTDIR):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from error
        raise


def rename_if_free(source: Path, target: Path) -> None:
    """As ``rename_exclusively``, by renames alone, so that ``source`` is gone; no folder with something in it is lost.

    Where the system cannot refuse in the same step, a file of the same instant would be replaced.
    """
    if _renameat2(source, target, _RENAME_NOREPLACE):
        return
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    source.rename(target)


def make_private_folder(folder: Path) -> None:
    """Make a directory into which nobody else may look."""
    folder.mkdir(0o700)


def rename(source: Path, target: Path) -> None:
    """Rename, in the place of a file or an empty directory that stands there."""
    source.replace(target)


def exchange(source: Path, target: Path) -> bool:
    """Swap two names atomically; False if the system cannot."""
    return _renameat2(source, target, _RENAME_EXCHANGE)


def _renameat2(source: Path, target: Path, flags: int) -> bool:
    """Linux's renameat2; False where it is not to be had."""
    try:
        function = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    done = function(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), flags)
    if done == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP):
        return False
    raise OSError(number, os.strerror(number), str(target))


def may_write_into(folder: Path) -> bool:
    """True if this process may make and remove names in a directory."""
    return os.access(folder, os.W_OK | os.X_OK)


def put_durably(path: Path, content: bytes) -> None:
    """Write a new file that lasts, once its name does. Raises FileExistsError."""
    with path.open("xb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def append_durably(path: Path, content: bytes) -> None:
    """Add to a file; the whole of it lasts once this returns."""
    with path.open("ab") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def sync_tree(path: Path) -> None:
    """fsync every file and directory at and below ``path``."""
    if not path.is_dir():
        _sync(path)
    for folder, _, files in os.walk(path):
        for name in files:
            _sync(f"{folder}/{name}")
        sync_directory(folder)


def sync_directory(path: Place) -> None:
    """fsync a directory, so that the names in it last."""
    _sync(path, os.O_DIRECTORY)


def _sync(path: Place, flag: int = 0) -> None:
    descriptor = os.open(path, os.O_RDONLY | flag)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
