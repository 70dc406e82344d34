"""Arrays as a directory for each leaf: Orbax with OCDBT switched off, and its oldest releases."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery_cli.inputs.regular_files import refuse_special
from surgery_cli.store.filesystem.boundary import linked
from surgery_cli.store.filesystem.listing import check_link
from surgery_cli.store.orbax.arrays import ChunkKeeper, StoredArray, below, new_context
from surgery_cli.store.orbax.sidecars import ARRAY_METADATAS, PROCESS_FILE
from surgery_cli.store.orbax.stored_values import StoredValue, whole_file
from surgery_cli.store.orbax.zarr import DOCUMENT_NAMES, parse_at

if TYPE_CHECKING:
    import tensorstore as ts


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
    def chunk_keeper(self) -> ChunkKeeper:
        return ChunkKeeper()

    @cached_property
    def arrays(self) -> dict[str, StoredArray]:
        found = {}
        for name, version in self._documents.items():
            folder = self.directory / name
            document = parse_at(
                (folder / DOCUMENT_NAMES[version]).read_bytes(), self.directory, name
            )
            files = dict(_own_files(folder, document.key_start))
            if name == ARRAY_METADATAS:  # a leaf may be called like the folder of these sidecars
                files = {k: n for k, n in files.items() if not k.startswith(PROCESS_FILE)}
            if not name:  # a bare array stands among the sidecars
                own = DOCUMENT_NAMES[version]
                files = {k: n for k, n in files.items() if k == own or document.is_chunk(k)}
            found[name] = StoredArray(
                name,
                document,
                tuple(files),
                sum(files.values()),
                empty_keys=tuple(key for key, size in files.items() if not size),
            )
        return found

    @property
    def data_files(self) -> list[str]:
        return [below(name) + key for name, array in self.arrays.items() for key in array.keys]

    @cached_property
    def symbolic_links(self) -> list[str]:
        return linked(self.directory, self.data_files)

    @property
    def dead_bytes(self) -> int:
        return 0

    def kvstore(self, name: str) -> dict[str, Any]:
        return {"driver": "file", "path": f"{self.directory / name}/"}

    def encoded(self, name: str) -> dict[str, bytes] | None:
        """None: a look-up is opening a file."""
        return None

    def stored_values(self, name: str) -> dict[str, StoredValue]:
        files = {key: self.directory / name / key for key in sorted(self.arrays[name].keys)}
        return {key: whole_file(file) for key, file in files.items()}

    def identity(self, name: str) -> Hashable:
        found = []
        for key in self.arrays[name].keys:
            status = (self.directory / name / key).stat()
            found.append((key, status.st_dev, status.st_ino))
        return tuple(found)


def _documents(directory: Path, prefix: str = "") -> Iterator[tuple[str, int]]:
    """Names of the array directories below ``directory``, with their zarr versions, sorted.

    What stands inside tells an array, not the name: a leaf may be called like a folder of sidecars. A bare array that
    is the whole tree has the empty name.
    """
    for version, document in DOCUMENT_NAMES.items():
        if not prefix and (directory / document).is_file():
            yield "", version
    for entry in sorted(os.scandir(directory), key=lambda e: e.name):
        if not entry.is_dir():
            if not entry.is_file():
                refuse_special(Path(entry.path))
            continue
        if entry.is_symlink():
            check_link(Path(entry.path))
        name = prefix + entry.name
        is_array = False
        for version, document in DOCUMENT_NAMES.items():
            if os.path.isfile(os.path.join(entry.path, document)):
                is_array = True
                yield name, version
        if is_array or not _is_chunk_folder(entry):
            yield from _documents(Path(entry.path), f"{name}/")


def _is_chunk_folder(entry: os.DirEntry[str]) -> bool:
    """``c`` beside ``zarr.json`` holds chunks, not arrays."""
    return entry.name == "c" and os.path.isfile(
        os.path.join(os.path.dirname(entry.path), DOCUMENT_NAMES[3])
    )


def _own_files(folder: Path, key_start: str) -> Iterator[tuple[str, int]]:
    """Files of an array, relative to its directory, with sizes; arrays nested by a slash are not its own."""
    for entry in sorted(os.scandir(folder), key=lambda e: e.name):
        if entry.is_file():
            yield entry.name, entry.stat().st_size
        elif not entry.is_dir():
            refuse_special(Path(entry.path))  # a link that leads nowhere is a chunk that is missing
        elif entry.name == key_start or (not key_start and entry.name.isdigit()):
            yield from _chunk_files(Path(entry.path), f"{entry.name}/", key_start)


def _chunk_files(folder: Path, prefix: str, key_start: str) -> Iterator[tuple[str, int]]:
    """Files of a folder of chunks; where an array of that very name stands in it, those that can be none of its."""
    check_link(folder)
    is_array = any((folder / document).is_file() for document in DOCUMENT_NAMES.values())
    if is_array and not key_start:
        return
    for entry in sorted(os.scandir(folder), key=lambda e: e.name):
        if is_array and not entry.name.isdigit():
            continue
        if entry.is_file():
            yield prefix + entry.name, entry.stat().st_size
        elif not entry.is_dir():
            refuse_special(Path(entry.path))
        else:
            yield from _chunk_files(Path(entry.path), f"{prefix}{entry.name}/", key_start)
