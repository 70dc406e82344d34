"""Stored values that were found, by their keys, with the way on which each was found."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from surgery_cli.errors import CheckpointError, UnseenError
from surgery_cli.salvage.states import Route
from surgery_cli.store import filesystem
from surgery_cli.store.orbax.stored_values import FileRange, StoredValue, are_same, is_copy


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
        self.gone: set[str] = set()
        """Keys that lead to no bytes any more, or to a place that is none."""
        self.is_walked = False
        """True if the item's own manifest opens, and all that it leads to was read: what it lacks was not stored."""
        self.rivals: dict[str, set[Route]] = {}
        """On which ways another value was found than the one that counts, by key."""
        self._sizes: dict[Path, int] = {}
        self._copied: dict[Path, Path] = {}

    def is_disputed(self, key: str) -> bool:
        """True if scanned nodes hold different values, and no manifest says which of them is newer."""
        scanned: Route = "scan for nodes"
        return scanned in self.rivals.get(key, ()) and self.held[key].route == scanned

    @property
    def are_of_two_saves(self) -> bool:
        """True if the manifest of the whole and that of a process lead to different values."""
        manifests = {"manifest", "process manifest"}
        return any(
            {route, self.held[key].route} == manifests
            for key, routes in self.rivals.items()
            for route in routes
        )

    def add(self, key: str, value: StoredValue, route: Route) -> None:
        """Take in a value; of the same bytes twice, those count that a checksum covers."""
        if isinstance(value, FileRange) and (place := self._place_of(value.path)) != value.path:
            value = msgspec.structs.replace(value, path=place)
        if not self._is_there(value):
            self.gone.add(key)
            return
        known = self.held.get(key)
        if known is None:
            self.held[key] = Held(value, route)
        elif not _is_same(known.value, value):
            self.rivals.setdefault(key, set()).add(route)
        elif isinstance(value, bytes):
            self.held[key] = Held(value, known.route)

    def _place_of(self, file: Path) -> Path:
        """Where a file is: under its own name, else under the one that rsync gives it until it has come whole."""
        if file not in self._copied:
            found = [] if filesystem.is_file(file) else list(_begun_copies(file))
            self._copied[file] = max(found, key=filesystem.size, default=file)
        return self._copied[file]

    def _is_there(self, value: StoredValue) -> bool:
        """True if the file in which a value is said to lie is there, and long enough."""
        if isinstance(value, bytes):
            return True
        if value.path not in self._sizes:
            is_file = filesystem.is_file(value.path)
            self._sizes[value.path] = filesystem.size(value.path) if is_file else -1
        return value.offset + value.length <= self._sizes[value.path]


def _begun_copies(file: Path) -> Iterator[Path]:
    """Copies of a file that rsync has begun: each is a prefix, where other tools write parts in any order."""
    name = re.compile(rf"\.{re.escape(file.name)}\.[A-Za-z0-9]{{6}}")
    for entry in filesystem.entries_if_any(file.parent):
        if not entry.is_folder and name.fullmatch(entry.name):
            yield file.parent / entry.name


def _is_same(one: StoredValue, other: StoredValue) -> bool:
    """True for one place, and for the same bytes at two: a merge may copy values out of a process's nodes."""
    if (
        isinstance(one, FileRange)
        and isinstance(other, FileRange)
        and is_copy((one.path, one), (other.path, other))
    ):
        return True
    try:
        return are_same(one, other)
    except UnseenError:
        raise
    except CheckpointError:  # what cannot be read is not known to be the same
        return False
