"""Stored values as they lie on disk, encoded: read, compared and copied in pieces, whatever their size."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol, TypeAlias

import msgspec

from surgery_cli.errors import CheckpointError
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import unreadable

PIECE_BYTES: Final = 4 << 20

NOT_RENAMED: Final = ".__lock"
"""What TensorStore adds to the name of a file that it has written and not renamed yet."""


class FileRange(msgspec.Struct, frozen=True):
    """A stored value: so many bytes of a file."""

    path: Path
    offset: int
    length: int

    def __len__(self) -> int:
        return self.length


def whole_file(path: Path) -> FileRange:
    """A value that has a file of its own.

    Raises:
        CheckpointError: the file is not there.
    """
    try:
        return FileRange(path, 0, filesystem.size(path))
    except OSError as error:
        raise unreadable(path, error) from None


StoredValue: TypeAlias = bytes | FileRange
"""A stored value, inline in a database's tree or where it lies."""


class Span(Protocol):
    """So many bytes of a data file."""

    @property
    def offset(self) -> int: ...
    @property
    def length(self) -> int: ...


def is_copy(one: tuple[str | Path, Span], other: tuple[str | Path, Span]) -> bool:
    """True for one place of one data file of a database, or of a copy: TensorStore draws their names at random."""
    (file, here), (there, span) = one, other
    is_place = (here.offset, here.length) == (span.offset, span.length)
    return is_place and Path(file).name == Path(there).name


def pieces(value: StoredValue) -> Iterator[bytes]:
    """The bytes of a value, at most ``PIECE_BYTES`` at once.

    Raises:
        CheckpointError: the file is not there, or ends before the value does.
    """
    if isinstance(value, bytes):
        yield value
        return
    for start in range(0, value.length, PIECE_BYTES):
        yield _read(value, start, min(PIECE_BYTES, value.length - start))


def whole(value: StoredValue) -> bytes:
    """The bytes of a value.

    Raises:
        CheckpointError: as ``pieces``.
    """
    return value if isinstance(value, bytes) else _read(value, 0, value.length)


def _read(value: FileRange, start: int, count: int) -> bytes:
    """So many bytes of a value, from its byte ``start`` on."""
    try:
        found = filesystem.read(value.path, value.offset + start, count)
    except OSError as error:
        raise unreadable(value.path, error) from None
    if len(found) < count:
        raise truncated(value.path, value.offset, value.length)
    return found


def truncated(path: Path, offset: int, length: int) -> CheckpointError:
    """The error for a file that ends before a value in it does."""
    return CheckpointError(
        f"'{path}' is truncated",
        why=f"a value at {offset:,} has {length:,} bytes there",
        fix="copy the checkpoint again from where it was whole",
    )


def are_same(a: StoredValue, b: StoredValue) -> bool:
    """True for the same bytes.

    Raises:
        CheckpointError: as ``pieces``.
    """
    if len(a) != len(b):
        return False
    if isinstance(a, bytes) or isinstance(b, bytes):
        return whole(a) == whole(b)
    return all(left == right for left, right in zip(pieces(a), pieces(b), strict=True))
