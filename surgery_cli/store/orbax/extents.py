"""Where a value or a node of an OCDBT database lies."""

from __future__ import annotations

from urllib.parse import unquote

import msgspec


class Extent(msgspec.Struct, frozen=True, gc=False):
    """A range of bytes in a data file; ``file`` is relative to the database's directory."""

    file: str
    offset: int
    length: int

    def __len__(self) -> int:
        return self.length


def extent_at(location: str) -> Extent:
    """``value:<base>:<file>:<offset>:<length>``, percent-encoded.

    Raises:
        ValueError: the location leads out of the database's directory.
    """
    _, base, file, offset, length = location.split(":")
    path = unquote(base) + unquote(file)
    if path.startswith("/") or ".." in path.split("/"):
        raise ValueError(f"a value is said to lie outside the store: {path!r}")
    return Extent(path, int(offset), int(length))
