"""Open files of this process that a path names: `/dev/stdout`, `/dev/fd/3`, `/proc/self/fd/1`."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import sys
from pathlib import Path
from typing import Final

_MOST_LINKS: Final = 40


def descriptor_of(path: Path) -> int | None:
    """The number of the open file that a path names, through links, too; None for a path like others."""
    folders = re.compile(rf"/dev/fd|/proc/{os.getpid()}(/task/[0-9]+)?/fd")
    place = path.absolute()
    for _ in range(_MOST_LINKS):
        if place.name.isdecimal() and folders.fullmatch(os.path.realpath(place.parent)):
            return int(place.name)
        if not place.is_symlink():
            return None
        place = place.parent / place.readlink()
    return None


def is_writable(descriptor: int) -> bool:
    """True if the file is open, and for writing."""
    try:
        mode = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
    except (OSError, OverflowError):
        return False
    return mode != os.O_RDONLY


def printed_to(path: Path) -> str:
    """`/dev/stdout` or `/dev/stderr`, where that goes into the file of another name; "" if neither does."""
    with contextlib.suppress(OSError):
        found = path.stat()
        for descriptor, name in ((1, "/dev/stdout"), (2, "/dev/stderr")):
            with contextlib.suppress(OSError):
                if stat.S_ISREG(found.st_mode) and os.path.samestat(found, os.fstat(descriptor)):
                    return name
    return ""


def append(descriptor: int, text: str) -> None:
    """Write behind what went there already: opened by its name, a file would begin anew.

    Raises:
        OSError: it does not take it.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    with os.fdopen(os.dup(descriptor), "w", encoding="utf-8") as file:
        file.write(text)
