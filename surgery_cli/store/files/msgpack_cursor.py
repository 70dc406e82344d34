"""A cursor over msgpack bytes in a file, which reads heads and skips bodies; bounded by the file's size.

Source: https://github.com/msgpack/msgpack/blob/master/spec.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from surgery_cli.errors import CheckpointError
from surgery_cli.store import filesystem
from surgery_cli.tree.paths import LeafPath

_READ_AHEAD: Final = 1 << 13


class Token(NamedTuple):
    """The head of one msgpack object; the body (of ``size`` bytes or entries) begins at the cursor."""

    kind: str
    size: int
    code: int = 0


class Oddity(NamedTuple):
    """What stands in a file, and no writer of Flax writes: as a rule, what is read there are displaced bytes."""

    at: int
    path: LeafPath
    """What is read there."""
    why: str


class Cursor:
    """A place in the file; nothing larger than the read-ahead is ever held.

    Raises:
        CheckpointError: (from every method) the file is cut short, or what stands there is not msgpack.
    """

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path = path
        self.file = file
        self.size = filesystem.size(path)
        self.at = 0
        self.odd_heads: list[tuple[int, str]] = []
        """Where heads stand that msgpack for Python never writes, and what is odd about each."""
        self._window = b""
        self._window_start = 0

    def refusal(self, why: str) -> CheckpointError:
        return CheckpointError(
            f"'{self.path}' is not a whole msgpack checkpoint",
            why=why,
            fix="it was cut short or damaged; copy it again from where it was whole",
        )

    def peek(self, count: int) -> bytes:
        return self._bytes_at(self.at, count)

    def _bytes_at(self, start: int, count: int) -> bytes:
        """``count`` bytes (fewer at the end of the file), through a small window."""
        low = start - self._window_start
        if low < 0 or low + count > len(self._window):
            self.file.seek(start)
            self._window = self.file.read(max(count, _READ_AHEAD))
            self._window_start, low = start, 0
        return self._window[low : low + count]

    def take(self, count: int) -> bytes:
        start = self.at
        self.skip(count)
        found = self._bytes_at(start, count)
        if len(found) < count:
            raise self.refusal("it became shorter while it was read")
        return found

    def skip(self, count: int) -> None:
        left = self.size - self.at
        if count > left:
            raise self.refusal(f"{count} bytes are declared at {self.at}, and {left} are left")
        self.at += count

    def _unsigned(self, width: int) -> int:
        return int.from_bytes(self.take(width), "big")

    def token(self) -> Token:
        """Read one head. Source: https://github.com/msgpack/msgpack/blob/master/spec.md."""
        start = self.at
        token = self._token()
        if not self._is_shortest(start, token):
            self.odd_heads.append(
                (start, f"a head {self._bytes_at(start, 1)[0]:#x} for what takes a shorter one")
            )
        return token

    def _is_shortest(self, start: int, token: Token) -> bool:
        """True for the head that msgpack for Python chooses, which is the shortest; floats have 64 bits."""
        first = self._bytes_at(start, 1)[0]
        if first in _NUMBERS:
            raw = self._bytes_at(start + 1, token.code)
            is_signed = first >= 0xD0
            number = int.from_bytes(raw, "big", signed=is_signed)
            return len(raw) < token.code or (
                number < _NUMBERS[first] if is_signed else number >= _NUMBERS[first]
            )
        if first in (0xC7, 0xC8, 0xC9):
            return token.size not in (1, 2, 4, 8, 16) and token.size >= _SHORTEST[first]
        return first != 0xCA and token.size >= _SHORTEST.get(first, 0)

    def _token(self) -> Token:
        first = self.take(1)[0]
        if first <= 0x7F or first >= 0xE0:
            return Token("int", 0)
        if first <= 0x8F:
            return Token("map", first & 0x0F)
        if first <= 0x9F:
            return Token("list", first & 0x0F)
        if first <= 0xBF:
            return Token("str", first & 0x1F)
        simple = _SIMPLE.get(first)
        if simple is not None:
            return Token(*simple)
        sized = _SIZED.get(first)
        if sized is not None:
            return Token(sized[0], self._unsigned(sized[1]))
        if 0xD4 <= first <= 0xD8:
            return Token("ext", 1 << (first - 0xD4), self.take(1)[0])
        if 0xC7 <= first <= 0xC9:
            size = self._unsigned(1 << (first - 0xC7))
            return Token("ext", size, self.take(1)[0])
        raise self.refusal(f"byte {first:#x} at {self.at - 1} begins nothing in msgpack")

    def integer(self) -> int:
        first = self.take(1)[0]
        if first <= 0x7F:
            return first
        if first >= 0xE0:
            return first - 0x100
        width = 1 << (first & 0x03)
        return int.from_bytes(self.take(width), "big", signed=first >= 0xD0)

    def length(self) -> int:
        start = self.at
        token = self.token()
        self.at = start
        size = self.integer() if token.kind in ("int", "uint64") else -1
        if size < 0:
            raise self.refusal(f"a shape at {start} holds something that is no size")
        return size


_SIMPLE: Final[dict[int, tuple[str, int, int]]] = {
    # head: kind, entries, bytes of the body
    0xC0: ("nil", 0, 0),
    0xC2: ("bool", 0, 0),
    0xC3: ("bool", 0, 0),
    0xCA: ("float", 0, 4),
    0xCB: ("float", 0, 8),
    0xCC: ("int", 0, 1),
    0xCD: ("int", 0, 2),
    0xCE: ("int", 0, 4),
    0xCF: ("uint64", 0, 8),
    0xD0: ("int", 0, 1),
    0xD1: ("int", 0, 2),
    0xD2: ("int", 0, 4),
    0xD3: ("int", 0, 8),
}
_SIZED: Final = {
    0xC4: ("bin", 1),
    0xC5: ("bin", 2),
    0xC6: ("bin", 4),
    0xD9: ("str", 1),
    0xDA: ("str", 2),
    0xDB: ("str", 4),
    0xDC: ("list", 2),
    0xDD: ("list", 4),
    0xDE: ("map", 2),
    0xDF: ("map", 4),
}
_SHORTEST: Final = {
    0xC5: 1 << 8,
    0xC6: 1 << 16,
    0xC8: 1 << 8,
    0xC9: 1 << 16,
    0xD9: 32,
    0xDA: 32,  # before version 1, there was no head between this one and the shortest
    0xDB: 1 << 16,
    0xDC: 16,
    0xDD: 1 << 16,
    0xDE: 16,
    0xDF: 1 << 16,
    # ext of up to 255 bytes has no shorter head but those of five sizes
    0xC7: 0,
}
"""The fewest bytes or entries for which a head is chosen. Source: ``msgpack/pack_template.h``."""
_NUMBERS: Final = {
    0xCC: 1 << 7,
    0xCD: 1 << 8,
    0xCE: 1 << 16,
    0xCF: 1 << 32,
    0xD0: -(1 << 5),
    0xD1: -(1 << 7),
    0xD2: -(1 << 15),
    0xD3: -(1 << 31),
}
"""The least number for which a head is chosen; of signed ones, each number that is chosen lies below."""
