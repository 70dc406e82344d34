"""By what a source is known again: its files' names, sizes and times, and no byte of its values."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from surgery_cli.store import filesystem


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
