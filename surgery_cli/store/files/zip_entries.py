"""Zip files that are damaged: what each entry's own header says of it, and what the directory at the end does.

Source: https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT (4.3.7, 4.3.12, 4.3.14 to 4.3.16, 4.5.3).
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from surgery_cli.store import filesystem
from surgery_cli.store.locate.file_formats import ZIP_MARK

_LISTED: Final = b"PK\x01\x02"
_END: Final = b"PK\x05\x06"
_WIDE_END: Final = b"PK\x06\x06"
_MARKS: Final = re.compile(rb"PK(?:\x01\x02|\x03\x04|\x05\x06|\x06\x06)")
_LOCAL_HEAD: Final = struct.Struct("<4s5H3I2H")
_LISTED_HEAD: Final = struct.Struct("<4s6H3I5H2I")
_UNKNOWN: Final = 0xFFFFFFFF
_MANY: Final = 0xFFFF
_WIDE: Final = 1
"""The field beside a name in which sizes stand that take more than 32 bits."""
_BEHIND: Final = 0x8
"""Flag of an entry whose sizes and checksum stand behind its bytes, and in the directory."""
_ENCRYPTED: Final = 0x1
_LARGEST_RATIO: Final = 1032
"""A run of zeros is the best case of deflate."""
_READ_FIRST: Final = 4 << 10
_READ_AT_ONCE: Final = 1 << 20


class Entry(NamedTuple):
    """An entry of an archive; its ``stored`` bytes begin at ``start``, or are said to."""

    name: str
    method: int
    crc: int
    start: int
    stored: int
    size: int
    has_sizes: bool = True
    """False where they stand behind its bytes, or it is encrypted."""
    is_whole: bool = False
    """Its bytes stand there, and have their checksum."""


class Entries(NamedTuple):
    """The entries as their own headers say them, and as the directory does."""

    local: list[Entry]
    listed: list[Entry]
    is_complete: bool
    """True if the directory says how many it has, and has as many."""


def entries_of(path: Path) -> Entries:
    """Every entry of which either says something, wherever it stands now."""
    at, size = 0, filesystem.size(path)
    local: list[Entry] = []
    listed: dict[tuple[str, int], Entry] = {}
    count, is_ended = None, False
    while (found := _next(path, _MARKS, at)) is not None:
        here, mark = found
        at = here + len(mark)
        if mark == ZIP_MARK and (entry := _local(path, here)) is not None:
            is_whole = unpacked(path, entry) is not None
            local.append(entry._replace(is_whole=is_whole))
            at = entry.start + entry.stored if is_whole else at
        elif mark == _LISTED and (one := _listed(path, here)) is not None:
            listed[one.name, one.start] = one
        elif mark == _WIDE_END and size - here >= 40:
            count = int.from_bytes(filesystem.read(path, here + 32, 8), "little")
        elif mark == _END and size - here >= 22:
            short = int.from_bytes(filesystem.read(path, here + 10, 2), "little")
            is_ended, count = True, count if short == _MANY else short
    return Entries(local, list(listed.values()), is_ended and count == len(listed))


def places_of(path: Path, mark: bytes) -> Iterator[int]:
    """Where some bytes stand in a file, each place."""
    at, pattern = 0, re.compile(re.escape(mark))
    while (found := _next(path, pattern, at)) is not None:
        yield found[0]
        at = found[0] + len(mark)


def _next(path: Path, pattern: re.Pattern[bytes], at: int) -> tuple[int, bytes] | None:
    """Where a pattern of up to eight bytes stands from ``at`` on, and the bytes."""
    size, count = filesystem.size(path), _READ_FIRST  # the next entry mostly begins right here
    while at < size:
        raw = filesystem.read(path, at, count + 8)
        found = pattern.search(raw)
        if found is not None:
            return at + found.start(), found[0]
        at, count = at + count, min(2 * count, _READ_AT_ONCE)
    return None


def _local(path: Path, at: int) -> Entry | None:
    raw = filesystem.read(path, at, _LOCAL_HEAD.size)
    if len(raw) < _LOCAL_HEAD.size:
        return None
    _, _, flags, method, _, _, crc, stored, size, name_bytes, more_bytes = _LOCAL_HEAD.unpack(raw)
    more = filesystem.read(path, at + len(raw), name_bytes + more_bytes)
    if len(more) < name_bytes + more_bytes:
        return None
    size, stored = _wide(more[name_bytes:], size, stored)
    start = at + len(raw) + len(more)
    name = more[:name_bytes].decode(errors="replace")
    return Entry(name, method, crc, start, stored, size, not flags & (_BEHIND | _ENCRYPTED))


def _listed(path: Path, at: int) -> Entry | None:
    """An entry of the directory, which says where the entry's own header stood."""
    raw = filesystem.read(path, at, _LISTED_HEAD.size)
    if len(raw) < _LISTED_HEAD.size:
        return None
    _, _, _, flags, method, _, _, crc, stored, size, *rest = _LISTED_HEAD.unpack(raw)
    name_bytes, more_bytes, _, _, _, _, offset = rest
    more = filesystem.read(path, at + len(raw), name_bytes + more_bytes)
    size, stored = _wide(more[name_bytes:], size, stored)
    name = more[:name_bytes].decode(errors="replace")
    return Entry(name, method, crc, offset, stored, size, not flags & _ENCRYPTED)


def _wide(extra: bytes, size: int, stored: int) -> tuple[int, int]:
    """Both sizes, from the field beside the name where they take more than 32 bits."""
    while len(extra) >= 4:
        code, length = struct.unpack_from("<HH", extra)
        field = extra[4 : 4 + length]
        if code == _WIDE:
            if size == _UNKNOWN and len(field) >= 8:
                size, field = int.from_bytes(field[:8], "little"), field[8:]
            if stored == _UNKNOWN and len(field) >= 8:
                stored = int.from_bytes(field[:8], "little")
        extra = extra[4 + length :]
    return size, stored


def unpacked(path: Path, entry: Entry) -> bytes | None:
    """The bytes of an entry; None if they are not there, or have not the checksum that it says."""
    if not entry.has_sizes or entry.start + entry.stored > filesystem.size(path):
        return None
    if entry.method == 0 and entry.size != entry.stored:
        return None
    raw = filesystem.read(path, entry.start, entry.stored)
    if entry.method == 8:
        unpacker = zlib.decompressobj(-15)
        most = len(raw) * _LARGEST_RATIO
        try:
            raw = unpacker.decompress(raw, min(entry.size, most) + 1)
        except zlib.error:
            return None
    return raw if len(raw) == entry.size and zlib.crc32(raw) == entry.crc else None
