"""Whether the system gives a file another name, told without trying: who may not link copies all of a checkpoint."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_PROTECTED: Final = Path("/proc/sys/fs/protected_hardlinks")
_STATUS: Final = Path("/proc/self/status")
_MOUNTS: Final = Path("/proc/self/mountinfo")

_CAP_FOWNER: Final = 1 << 3
_WITHOUT_REFLINKS: Final = ("ext2", "ext3", "ext4", "tmpfs", "f2fs")
"""Elsewhere bytes may be shared without a second name."""


def is_sharing_forbidden(file: Path) -> bool:
    """True if Linux lets only its owner link a file, or who may write it, and its filesystem has no reflinks.

    Source: `fs.protected_hardlinks` in the kernel's documentation of sysctls.
    """
    if _text(_PROTECTED).strip() != "1" or _capabilities() & _CAP_FOWNER:
        return False
    status = os.stat(file)
    may_write = os.access(file, os.R_OK | os.W_OK, effective_ids=True)
    if status.st_uid == os.geteuid() or may_write:
        return False
    return _kind_of_filesystem(status.st_dev) in _WITHOUT_REFLINKS


def _capabilities() -> int:
    lines = (line.split() for line in _text(_STATUS).splitlines())
    return next((int(words[1], 16) for words in lines if words[:1] == ["CapEff:"]), 0)


def _kind_of_filesystem(device: int) -> str:
    """As `mount` calls it; nothing where it is not told."""
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in _text(_MOUNTS).splitlines():
        fields, _, more = line.partition(" - ")
        if fields.split()[2:3] == [number]:
            return more.split()[0]
    return ""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:  # no Linux
        return ""
