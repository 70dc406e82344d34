"""Whether a destination's filesystem can take what a run writes, asked before any work."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from surgery_cli.errors import DestinationError
from surgery_cli.quantities import byte_text

_LEAST_SPARE: Final = 1 << 20
_SPARE_PART: Final = 100
"""Beside what it writes, a run wants 1 MiB and a hundredth of that: metadata, directories, the record."""

_HOLD_NO_FILES: Final = ("/proc", "/sys")


def check_space(destination: Path, needed: int) -> None:
    """Refuse a destination where ``needed`` bytes, and some for metadata, do not fit.

    Raises:
        DestinationError: there is not enough room, or the system keeps no files there.
    """
    parent = standing_parent(destination)
    if any(parent.resolve().is_relative_to(place) for place in _HOLD_NO_FILES):
        raise DestinationError(
            f"'{destination}' cannot be written",
            why=f"'{parent}' shows the system's state, and holds no files",
            fix="name a directory on a disk",
        )
    needed += _LEAST_SPARE + needed // _SPARE_PART
    usage = shutil.disk_usage(parent)
    # a total of zero is a filesystem that does not tell
    if usage.total and needed > usage.free:
        raise DestinationError(
            f"'{parent}' has not enough room for '{destination.name}'",
            why=f"about {byte_text(needed)} needed, {byte_text(usage.free)} free",
            fix="free some, or write to another filesystem",
        )


def standing_parent(destination: Path) -> Path:
    """The innermost directory above the destination that exists."""
    parent = destination.absolute().parent
    while not parent.exists():
        parent = parent.parent
    return parent
