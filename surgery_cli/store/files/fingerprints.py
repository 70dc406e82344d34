"""By what a source is known again: its files' names, sizes and times, and no byte of its values."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.protocol import Place


def of_files(files: Iterable[Path]) -> str:
    """The fingerprint of an item that is files from begin to end: hexadecimal."""
    record = hashlib.sha256()
    for file in files:
        status = filesystem.status(file)
        record.update(f"{file.name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return record.hexdigest()


def of_items(items: Iterable[tuple[str, str]], beside: bytes = b"") -> str:
    """The fingerprint of a source by those of its items, each with its name; a file by itself is one without a name."""
    record = hashlib.sha256()
    for name, fingerprint in items:
        record.update(f"{name}\0{fingerprint}\n".encode())
    record.update(beside)
    return f"sha256:{record.hexdigest()}"


def versions(places: Iterable[Path]) -> dict[str, int]:
    """The version of every object below those of these places that lie in buckets, by its address."""
    return {
        file: filesystem.status(file).st_ino
        for place in places
        if isinstance(place, BucketPath)
        for file in filesystem.files_below(place)
    }


def of_versions(place: Path, files: Iterable[Place]) -> str:
    """What tells files at or below a place from others that came under their names and with their sizes: hexadecimal.

    In a bucket the versions of the objects, on a disk the times of their last writing.
    """
    record = hashlib.sha256()
    for name in sorted(os.fspath(file) for file in files):
        found = filesystem.status(name)
        version = found.st_ino if isinstance(place, BucketPath) else found.st_mtime_ns
        below = name.removeprefix(os.fspath(place))
        record.update(f"{below}\0{found.st_size}\0{version}\n".encode())
    return record.hexdigest()
