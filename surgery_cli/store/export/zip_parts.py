"""A zip archive as parts: entries that are not compressed, whose checksums are known once they are written.

Source: https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT, 4.3 (records) and 4.5.3 (sizes of 64 bits).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Final

from surgery_cli.store.export.contract import Late, Part, Values

_VERSION: Final = 45
"""The least that knows sizes of 64 bits: they are written so, however small the archive is."""

_FLAGS: Final = 0x0808
"""Checksums follow their entries; names are UTF-8."""

_FIRST_DAY: Final = 0x21
"""The first of January 1980: the same leaves make the same bytes."""

_LOCAL: Final = struct.Struct("<4s5H3L2H")
_SIZES: Final = struct.Struct("<2H2Q")
_DESCRIPTOR: Final = struct.Struct("<4sL2Q")
_CENTRAL: Final = struct.Struct("<4s6H3L5H2L")
_SIZES_AND_PLACE: Final = struct.Struct("<2H3Q")
_END_64: Final = struct.Struct("<4sQ2H2L4Q")
_LOCATOR: Final = struct.Struct("<4sLQL")
_END: Final = struct.Struct("<4s4H2LH")
_IN_64_BITS, _MANY = 0xFFFFFFFF, 0xFFFF
_READABLE: Final = 0o644 << 16


class Archive:
    """The entries of an archive, as they are added, and the directory at its end."""

    def __init__(self) -> None:
        self._at = 0
        self._entries: list[_Entry] = []

    def entry(self, name: str, head: bytes, values: Values) -> Iterator[Part]:
        """An entry that holds ``head``, then ``values``."""
        entry = _Entry(name.encode(), self._at, len(head) + values.bytes)
        self._entries.append(entry)
        entry.see(head)
        self._at += len(entry.local) + entry.size + _DESCRIPTOR.size
        yield entry.local + head
        yield Values(values.path, values.bytes, entry.see)
        yield Late(partial(entry.descriptor), _DESCRIPTOR.size)

    def end(self) -> Late:
        """The directory, which readers begin with."""
        count = sum(_CENTRAL.size + len(e.name) + _SIZES_AND_PLACE.size for e in self._entries)
        return Late(self._directory, count + _END_64.size + _LOCATOR.size + _END.size)

    def _directory(self) -> bytes:
        central = b"".join(entry.central for entry in self._entries)
        count, end = len(self._entries), self._at + len(central)
        sizes = (count, count, len(central), self._at)
        end_64 = _END_64.pack(b"PK\6\6", _END_64.size - 12, _VERSION, _VERSION, 0, 0, *sizes)
        locator = _LOCATOR.pack(b"PK\6\7", 0, end, 1)
        few = (min(count, _MANY), min(count, _MANY))
        small = (min(len(central), _IN_64_BITS), min(self._at, _IN_64_BITS))
        return central + end_64 + locator + _END.pack(b"PK\5\6", 0, 0, *few, *small, 0)


class _Entry:
    """What the archive says of an entry, once its bytes have been seen."""

    def __init__(self, name: bytes, at: int, size: int) -> None:
        self.name = name
        self.size = size
        self._at = at
        self._crc = 0

    def see(self, piece: Any) -> None:
        self._crc = zlib.crc32(piece, self._crc)

    @property
    def local(self) -> bytes:
        """What stands before its bytes; their number and checksum follow behind them."""
        head = (_VERSION, _FLAGS, 0, 0, _FIRST_DAY, 0, _IN_64_BITS, _IN_64_BITS, len(self.name))
        sizes = _SIZES.pack(1, 16, 0, 0)
        return _LOCAL.pack(b"PK\3\4", *head, len(sizes)) + self.name + sizes

    def descriptor(self) -> bytes:
        return _DESCRIPTOR.pack(b"PK\7\x08", self._crc, self.size, self.size)

    @property
    def central(self) -> bytes:
        sizes = _SIZES_AND_PLACE.pack(1, 24, self.size, self.size, self._at)
        made_by = 3 << 8 | _VERSION  # with permissions of Unix
        head = (made_by, _VERSION, _FLAGS, 0, 0, _FIRST_DAY, self._crc, _IN_64_BITS, _IN_64_BITS)
        rest = (len(self.name), len(sizes), 0, 0, 0, _READABLE, _IN_64_BITS)
        return _CENTRAL.pack(b"PK\1\2", *head, *rest) + self.name + sizes


def archived(entries: Iterable[tuple[str, bytes, Values]]) -> list[Part]:
    """All parts of an archive of these entries: name, head and values of each."""
    archive = Archive()
    parts = [part for entry in entries for part in archive.entry(*entry)]
    return [*parts, archive.end()]
