"""Taking over files that never change: by reflink, by hard link, or by copying."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import stat
import sys
from enum import StrEnum
from pathlib import Path

import msgspec

from surgery_cli.inputs.regular_files import refuse_special
from surgery_cli.store.filesystem.boundary import Boundary
from surgery_cli.store.filesystem.listing import check_link

_FICLONE = 0x40049409


class LinkMode(StrEnum):
    """What the user allows: ``auto`` tries reflink, then hard link, then copies."""

    AUTO = "auto"
    REFLINK = "reflink"
    HARD = "hard"
    NEVER = "never"


class Carried(msgspec.Struct):
    """What was taken over: bytes that both sides share, bytes that were copied, and the new names of hard links."""

    linked_bytes: int = 0
    copied_bytes: int = 0
    shared: list[Path] = []


class Linker:
    """Carries files of the source into the new checkpoint and counts what it did."""

    def __init__(self, mode: LinkMode = LinkMode.AUTO, boundary: Boundary | None = None) -> None:
        """``boundary``: a file that a link leads to outside of it is never hard-linked. None: there is no outside."""
        self.mode = mode
        self.boundary = boundary
        self.carried = Carried()
        self._without_reflinks: set[tuple[int, int]] = set()
        """Filesystems, as source and target, that were asked for a reflink and have none."""

    def carry(self, source: Path, target: Path) -> None:
        """Make immutable ``source`` appear as ``target``, sharing its bytes if that is possible and allowed.

        A way that the system refuses (other device, permissions, link limits, no reflinks) falls back to the next.

        Raises:
            CheckpointError: ``source`` is no file.
        """
        status = source.stat()
        if not stat.S_ISREG(status.st_mode):
            refuse_special(source)
        size = status.st_size
        for way in self._ways():
            if way == "reflink" and self._reflink(source, target, status.st_dev):
                self.carried.linked_bytes += size
                return
            if way == "hard" and self._hard_link(source, target):
                self.carried.linked_bytes += size
                self.carried.shared.append(target)
                return
        self.copy(source, target)

    def copy(self, source: Path, target: Path) -> None:
        """Copy a file that may be replaced or edited later; its times and mode come along.

        Raises:
            CheckpointError: ``source`` is no file.
        """
        refuse_special(source)
        shutil.copy2(source, target)
        self.carried.copied_bytes += target.stat().st_size

    def copy_tree(self, source: Path, target: Path) -> None:
        """Copy a file or directory that is carried along as it is; symbolic links are read as files.

        Raises:
            CheckpointError: a symbolic link leads in a circle, or something is neither a file nor a directory.
        """
        check_link(source)
        if source.is_dir():
            target.mkdir(exist_ok=True)
            for entry in sorted(os.scandir(source), key=lambda e: e.name):
                self.copy_tree(Path(entry.path), target / entry.name)
        else:
            self.copy(source, target)

    def _ways(self) -> tuple[str, ...]:
        return {
            LinkMode.AUTO: ("reflink", "hard"),
            LinkMode.REFLINK: ("reflink",),
            LinkMode.HARD: ("hard",),
            LinkMode.NEVER: (),
        }[self.mode]

    def _reflink(self, source: Path, target: Path, device: int) -> bool:
        """Try a reflink, once for each pair of filesystems: most have none, and a store may be 100,000 files."""
        filesystems = device, target.parent.stat().st_dev
        if sys.platform != "linux" or filesystems in self._without_reflinks:
            return False
        try:
            _reflink(source, target)
        except OSError as error:
            if error.errno == errno.EEXIST:
                raise
            target.unlink(missing_ok=True)
            if error.errno in (errno.EOPNOTSUPP, errno.ENOTTY):
                self._without_reflinks.add(filesystems)
            return False
        return True

    def _hard_link(self, source: Path, target: Path) -> bool:
        boundary = self.boundary
        if boundary is not None and not boundary.holds(source):
            return False
        try:
            # the file itself: Linux links a symbolic link as a link, whatever `follow_symlinks` says
            os.link(os.path.realpath(source) if boundary is None else boundary.real(source), target)
        except OSError as error:
            if error.errno in (
                errno.EXDEV,
                errno.EPERM,
                errno.EMLINK,
                errno.EOPNOTSUPP,
                errno.EACCES,
            ):
                return False
            raise
        return True


def _reflink(source: Path, target: Path) -> None:
    """Share the extents of ``source`` with a new file; an OSError where that cannot be."""
    with source.open("rb") as reader, target.open("xb") as writer:
        fcntl.ioctl(writer.fileno(), _FICLONE, reader.fileno())
    shutil.copystat(source, target)


_AT_FDCWD = -100
_RENAME_NOREPLACE, _RENAME_EXCHANGE = 1, 2


def rename_exclusively(source: Path, target: Path) -> None:
    """Rename, failing with FileExistsError if ``target`` exists; atomically where the system can."""
    if _renameat2(source, target, _RENAME_NOREPLACE):
        return
    if source.is_dir():
        target.mkdir()  # claims the name, or raises
        source.rename(target)  # replaces the empty directory that was just claimed
    else:
        os.link(source, target)
        source.unlink()


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
