"""Stored values that were found, by their keys, with the way on which each was found."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from surgery_cli.store import filesystem
from surgery_cli.store.orbax.stored_values import StoredValue

Route: TypeAlias = Literal[
    "manifest",
    "process manifest",
    "manifest not renamed",
    "earlier version",
    "scan for nodes",
    "leaf folder",
    "file not renamed",
]
"""How a value was found, best first. What a save had not renamed yet is as whole as its bytes are."""


class Held(msgspec.Struct, frozen=True, gc=False):
    """A stored value: its bytes, or where they lie."""

    value: StoredValue
    route: Route

    @property
    def is_proven(self) -> bool:
        """True if a checksum covers the bytes: those that stand in a node of a database."""
        return isinstance(self.value, bytes)


class Values:
    """Values by key; the first way on which a key is found counts."""

    def __init__(self) -> None:
        self.held: dict[str, Held] = {}
        self._sizes: dict[Path, int] = {}
        self.differ = False
        """True if the manifest of the whole and that of a process lead to different values: of two saves."""
        self.disputed: set[str] = set()
        """Keys for which scanned nodes say different things, and no manifest which of them is newer."""

    def add(self, key: str, value: StoredValue, route: Route) -> None:
        known = self.held.get(key)
        if known is None and not self._is_there(value):
            return
        if known is None:
            self.held[key] = Held(value, route)
        elif known.value != value and self._is_there(value):
            if known.route == route == "scan for nodes":
                self.disputed.add(key)
            elif {known.route, route} == {"manifest", "process manifest"}:
                self.differ = True

    def _is_there(self, value: StoredValue) -> bool:
        """True if the file in which a value is said to lie is there, and long enough."""
        if isinstance(value, bytes):
            return True
        if value.path not in self._sizes:
            is_file = filesystem.is_file(value.path)
            self._sizes[value.path] = filesystem.size(value.path) if is_file else -1
        return value.offset + value.length <= self._sizes[value.path]
