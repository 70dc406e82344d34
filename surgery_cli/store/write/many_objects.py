"""Requests for many objects of a bucket, many at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, wait
from pathlib import Path

from surgery_cli.inputs.buckets import ServiceRefusal, path_at
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.bucket_guard import Guard
from surgery_cli.store.filesystem.interruptions import Threads
from surgery_cli.store.write.commit_marks import innermost_first, without_marks


def objects_at(place: Path) -> list[Path]:
    """The objects at and below a place."""
    filesystem.forget(place)
    return [path_at(found) for found in filesystem.files_below(place)]


def copy_below(folder: Path, target: Path) -> None:
    """Copy all objects of a folder, each as it was when it was listed, and its marks last.

    Raises:
        FileNotFoundError: one of them has gone; or Replaced.
    """
    objects = objects_at(folder)
    pairs = [(place, target / place.relative_to(folder)) for place in without_marks(objects)]
    each(filesystem.copy, pairs)
    for mark in innermost_first(objects):
        filesystem.copy(mark, target / mark.relative_to(folder))


def delete_as_seen(objects: Sequence[Path], guard: Guard) -> None:
    """As ``delete_all``, of what stands at a guarded destination, whoever has made it.

    Raises:
        OSError: a service refuses it, or the destination is another run's by now.
    """
    guard.may_go(objects)
    delete_all(objects)


def delete_all(objects: Sequence[Path]) -> None:
    """Delete objects, marks first and outermost first; what has come in the place of one since it was seen stays."""
    for mark in reversed(innermost_first(objects)):
        filesystem.delete_as_found(mark)
    each(filesystem.delete_as_found, [(place,) for place in without_marks(objects)])


def each(request: Callable[..., object], arguments: Iterable[tuple[Path, ...]]) -> None:
    """Make many requests, many at once; no more begin once one has failed.

    Of several errors that is raised after which most may still come: none where a service said that it does nothing.
    """
    pending = list(arguments)
    if not pending:
        return
    with Threads(filesystem.requests_at_once(pending[0][0])) as pool:
        asked = [pool.submit(request, *given) for given in pending]
        try:
            wait(asked, return_when=FIRST_EXCEPTION)
        finally:
            for one in asked:
                one.cancel()
    errors = [error for one in asked if not one.cancelled() and (error := one.exception())]
    if errors:
        raise min(errors, key=lambda one: isinstance(one, ServiceRefusal) and one.is_answered)
