"""The files of a checkpoint, each with its SHA-256: what a seal covers beside the values of leaves."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from surgery_cli.engine.budget import in_order
from surgery_cli.errors import CheckpointError
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import damage_of, files_below, reading
from surgery_cli.store.filesystem.names import is_leftover

Result = TypeVar("Result")

ITSELF: Final = "."
"""The key of a checkpoint that is one file: its name may change, what it holds may not."""

READ_BYTES: Final = 1 << 20
"""What reading a file for its digest holds in memory, roughly."""

PIECE_BYTES: Final = 16 << 20
"""Files of more than this are sealed in pieces as well, so that a part of one can be checked by itself."""

READ_AT_ONCE: Final = 4
"""So many files are read side by side."""


def files_of(place: Path, record: Path | None = None) -> dict[str, Path]:
    """Every file at or below ``place`` but the ``record``, by its path relative to it, sorted.

    A link counts as the file to which it leads. What other runs have there, or have left there, is no part of it.

    Raises:
        CheckpointError: a directory cannot be read, a link leads in a circle, or something is no regular file.
    """
    if not filesystem.is_folder(place):
        return {ITSELF: place}
    found = {}
    with reading(place):
        for name, entry in files_below(place):
            if any(map(is_leftover, name.split("/"))):
                continue
            if not entry.is_file:
                raise CheckpointError(
                    f"'{place / name}' leads nowhere",
                    why="a link whose file is not there has no content to record",
                    fix="put the file there, or remove the link",
                )
            if place / name != record:
                found[file_key(name)] = place / name
    return dict(sorted(found.items()))


class FileDigest(NamedTuple):
    """``sha256:…`` of a file, and of a large one the SHA-256 of each of its pieces."""

    digest: str
    size: int
    pieces: tuple[bytes, ...] = ()


def digest_with_pieces(path: Path) -> FileDigest:
    """Read a file once for its digest and those of its pieces; in pieces are files of more than one."""
    whole = hashlib.sha256()
    pieces, piece, count = [], hashlib.sha256(), 0
    is_large = filesystem.size(path) > PIECE_BYTES
    buffer = memoryview(bytearray(READ_BYTES))
    with filesystem.reader(path) as stream:
        while read := stream.readinto(buffer):
            whole.update(buffer[:read])
            if is_large:
                head = min(PIECE_BYTES - count % PIECE_BYTES, read)
                piece.update(buffer[:head])
                if (count + head) % PIECE_BYTES == 0:
                    pieces.append(piece.digest())
                    piece = hashlib.sha256()
                piece.update(buffer[head:read])
            count += read
    if is_large and count % PIECE_BYTES:
        pieces.append(piece.digest())
    return FileDigest(f"sha256:{whole.hexdigest()}", count, tuple(pieces))


def piece_digest(path: Path, start: int, count: int | None) -> bytes:
    """SHA-256 of a piece of a file, or of what is there of it; without a ``count`` to its end."""
    record = hashlib.sha256()
    with filesystem.reader(path) as stream:
        if count is None:
            return hashlib.file_digest(stream, "sha256").digest()
        buffer = memoryview(bytearray(min(READ_BYTES, max(count, 1))))
        stream.seek(start)
        while count and (read := stream.readinto(buffer[: min(count, len(buffer))])):
            record.update(buffer[:read])
            count -= read
    return record.digest()


def file_digests(
    files: Mapping[str, Path], advance: Callable[[int, str], None]
) -> dict[str, str | CheckpointError]:
    """``sha256:…`` of every file, or why it cannot be read; ``advance`` is told bytes and key of each."""

    def digest_of(path: Path) -> str:
        with filesystem.reader(path) as stream:
            return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"

    return of_each_file(digest_of, files, advance)


def of_each_file(
    function: Callable[[Path], Result],
    files: Mapping[str, Path],
    advance: Callable[[int, str], None],
) -> dict[str, Result | CheckpointError]:
    """What the function tells of every file, several at once, or why one cannot be read; see ``file_digests``.

    Raises:
        UnseenError: nothing is told of what one holds: it is neither damaged nor another.
    """

    def told(path: Path) -> Result | CheckpointError:
        try:
            return function(path)
        except OSError as error:
            return damage_of(path, error)

    found: dict[str, Result | CheckpointError] = {}
    tasks = ((path, READ_BYTES) for path in files.values())
    for (key, path), one in zip(
        files.items(), in_order(told, tasks, READ_AT_ONCE * READ_BYTES), strict=True
    ):
        found[key] = one
        advance(filesystem.size(path) if filesystem.exists(path) else 0, key)
    return found


def file_key(name: str) -> str:
    """A path as text; bytes that are no UTF-8 are escaped."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
