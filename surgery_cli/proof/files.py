"""The files of a checkpoint, each with its SHA-256: what a seal covers beside the values of leaves."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from surgery_cli.engine.budget import in_order
from surgery_cli.errors import CheckpointError
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import files_below, reading, unreadable

ITSELF: Final = "."
"""The key of a checkpoint that is one file: its name may change, what it holds may not."""

_READ_BYTES: Final = 1 << 20
"""What reading a file for its digest holds in memory, roughly."""

_READ_AT_ONCE: Final = 4
"""So many files are read side by side."""


def files_of(place: Path, record: Path | None = None) -> dict[str, Path]:
    """Every file at or below ``place`` but the ``record``, by its path relative to it, sorted.

    A link counts as the file to which it leads.

    Raises:
        CheckpointError: a directory cannot be read, a link leads in a circle, or something is no regular file.
    """
    if not filesystem.is_folder(place):
        return {ITSELF: place}
    found = {}
    with reading(place):
        for name, entry in files_below(place):
            if not entry.is_file:
                raise CheckpointError(
                    f"'{place / name}' leads nowhere",
                    why="a link whose file is not there has no content to record",
                    fix="put the file there, or remove the link",
                )
            if place / name != record:
                found[_key(name)] = place / name
    return dict(sorted(found.items()))


def file_digests(
    files: Mapping[str, Path], advance: Callable[[int, str], None]
) -> dict[str, str | CheckpointError]:
    """``sha256:…`` of every file, or why it cannot be read; ``advance`` is told bytes and key of each."""

    def digest_of(path: Path) -> str | CheckpointError:
        try:
            with filesystem.reader(path) as stream:
                return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"
        except OSError as error:
            return unreadable(path, error)

    found: dict[str, str | CheckpointError] = {}
    tasks = ((path, _READ_BYTES) for path in files.values())
    for (key, path), digest in zip(
        files.items(), in_order(digest_of, tasks, _READ_AT_ONCE * _READ_BYTES), strict=True
    ):
        found[key] = digest
        advance(filesystem.size(path) if filesystem.exists(path) else 0, key)
    return found


def _key(name: str) -> str:
    """A path as text; bytes that are no UTF-8 are escaped."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
