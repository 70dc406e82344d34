"""Of `plan`, `apply` and `export`: which files a result in a format of other programs is."""

from __future__ import annotations

import msgspec


class ExportedFile(msgspec.Struct, kw_only=True, frozen=True):
    """A file: its name in the destination, or the destination's own; how many leaves stand in it."""

    name: str
    leaves: int
    bytes: int
    """All of its bytes, those of headers included; Python numbers and texts of msgpack are estimates."""


class Exported(msgspec.Struct, kw_only=True, frozen=True):
    """The files of a result, in the order in which they are written."""

    format: str
    files: list[ExportedFile]
