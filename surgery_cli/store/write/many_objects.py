"""Requests for many objects of a bucket, many at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from surgery_cli.inputs.buckets import path_at
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.interruptions import Threads


def objects_at(place: Path) -> list[Path]:
    """The objects at and below a place."""
    filesystem.forget(place)
    return [path_at(found) for found in filesystem.files_below(place)]


def copy_below(folder: Path, target: Path) -> None:
    """Copy all objects of a folder, each as it was when it was listed.

    Raises:
        FileNotFoundError: one of them has gone; or Replaced.
    """
    each(filesystem.copy, [(p, target / p.relative_to(folder)) for p in objects_at(folder)])


def each(request: Callable[..., None], arguments: Iterable[tuple[Path, ...]]) -> None:
    """Make many requests, many at once."""
    pending = list(arguments)
    if pending:
        with Threads(filesystem.requests_at_once(pending[0][0])) as pool:
            for _ in pool.map(lambda given: request(*given), pending):
                pass
