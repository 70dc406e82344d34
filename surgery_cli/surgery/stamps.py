"""What files were when sealing a checkpoint began: it is refused if one is another by the end."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from surgery_cli.errors import CheckpointError
from surgery_cli.proof.record_files import gone
from surgery_cli.store import filesystem

Stamp: TypeAlias = tuple[int, int, int]
"""Of a file: its inode, size and time of change."""


def stamp_of(path: Path) -> Stamp:
    try:
        status = filesystem.status(path)
    except FileNotFoundError:
        return (0, 0, 0)
    return status.st_ino, status.st_size, status.st_mtime_ns


def check_standing(place: Path, before: Mapping[Path, Stamp]) -> None:
    """Refuse what is no more what it was when sealing it began."""
    filesystem.forget(place)
    if not filesystem.exists(place):
        raise gone(place)
    filesystem.files_below(place)  # in a bucket, all are listed together
    for path, stamp in before.items():
        now_is = stamp_of(path)
        if not any(now_is):
            raise gone(place, path)
        if now_is != stamp:
            raise CheckpointError(
                f"'{place}' changed while it was sealed",
                why=f"'{path}' is not what it was at the start",
                fix="wait until whatever writes to it has ended, then seal it again",
            )
