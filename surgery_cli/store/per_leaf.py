"""Arrays as a directory for each leaf: Orbax with OCDBT switched off, and its oldest releases."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery_cli.store.arrays import StoredArray, new_context
from surgery_cli.store.zarr import DOCUMENT_NAMES, parse

if TYPE_CHECKING:
    import tensorstore as ts

_SIDECAR_DIRECTORIES = ("array_metadatas", "d")


class PerLeafStore:
    """The arrays of an item directory in which every array has a directory of its own."""

    def __init__(self, directory: Path, zarr: int | None = None) -> None:
        self.directory = directory
        self._declared_zarr = zarr

    @staticmethod
    def recognises(directory: Path) -> bool:
        """True if a subdirectory (keys with slashes nest) holds an array document."""
        return any(True for _ in _documents(directory))

    @cached_property
    def _documents(self) -> dict[str, int]:
        return dict(_documents(self.directory))

    @cached_property
    def zarr(self) -> int:
        if self._declared_zarr is not None:
            return self._declared_zarr
        return next(iter(self._documents.values()), 2)

    @property
    def layout(self) -> str:
        return f"per-leaf zarr{self.zarr}"

    @cached_property
    def context(self) -> ts.Context:
        return new_context()

    @cached_property
    def arrays(self) -> dict[str, StoredArray]:
        found = {}
        for name, version in self._documents.items():
            folder = self.directory / name
            document = parse((folder / DOCUMENT_NAMES[version]).read_bytes())
            files = dict(_own_files(folder))
            found[name] = StoredArray(name, document, tuple(files), sum(files.values()))
        return found

    @property
    def dead_bytes(self) -> int:
        return 0

    def kvstore(self, name: str) -> dict[str, Any]:
        return {"driver": "file", "path": f"{self.directory / name}/"}

    def identity(self, name: str) -> Hashable:
        found = []
        for key in self.arrays[name].keys:
            status = (self.directory / name / key).stat()
            found.append((key, status.st_dev, status.st_ino))
        return tuple(found)


def _documents(directory: Path, prefix: str = "") -> Iterator[tuple[str, int]]:
    """Names of the array directories below ``directory``, with their zarr versions, sorted."""
    for entry in sorted(os.scandir(directory), key=lambda e: e.name):
        if not entry.is_dir() or (not prefix and entry.name in _SIDECAR_DIRECTORIES):
            continue
        name = prefix + entry.name
        for version, document in DOCUMENT_NAMES.items():
            if os.path.isfile(os.path.join(entry.path, document)):
                yield name, version
        if not _is_chunk_folder(entry):
            yield from _documents(Path(entry.path), f"{name}/")


def _is_chunk_folder(entry: os.DirEntry[str]) -> bool:
    """``c`` beside ``zarr.json`` holds chunks, not arrays."""
    return entry.name == "c" and os.path.isfile(
        os.path.join(os.path.dirname(entry.path), DOCUMENT_NAMES[3])
    )


def _own_files(folder: Path, prefix: str = "") -> Iterator[tuple[str, int]]:
    """Files of an array, relative to its directory, with sizes; arrays nested by a slash are not its own."""
    for entry in sorted(os.scandir(folder), key=lambda e: e.name):
        if entry.is_file():
            yield prefix + entry.name, entry.stat().st_size
        elif (prefix or _is_chunk_folder(entry) or entry.name.isdigit()) and not any(
            (Path(entry.path) / document).is_file() for document in DOCUMENT_NAMES.values()
        ):
            yield from _own_files(Path(entry.path), f"{prefix}{entry.name}/")
