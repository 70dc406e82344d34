"""Arrays as a directory for each leaf: Orbax with OCDBT switched off, and its oldest releases."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Final

from surgery_cli.inputs.limits import DOCUMENT, LEAVES
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import refuse_special_among
from surgery_cli.store.filesystem.protocol import Entry
from surgery_cli.store.filesystem.small_files import fetch_together, read_small
from surgery_cli.store.orbax.arrays import ArrayStore, StoredArray, below
from surgery_cli.store.orbax.sidecars import ARRAY_METADATAS, PROCESS_FILE
from surgery_cli.store.orbax.stored_values import StoredValue, whole_file
from surgery_cli.store.orbax.zarr import DOCUMENT_NAMES, parse_at

_TOGETHER: Final = 1000
"""Of so many folders documents are fetched before they are parsed."""

_SMALL_BYTES: Final = 32 << 10
"""A thousand of no more than this are kept until they are parsed; documents have some hundred bytes."""


class PerLeafStore(ArrayStore):
    """The arrays of an item directory in which every array has a directory of its own."""

    @staticmethod
    def recognises(directory: Path) -> bool:
        """True if a folder below (keys with slashes nest) holds an array document."""
        return any(True for _ in _versions(directory))

    @cached_property
    def zarr(self) -> int:
        return next(_versions(self.directory), 2)

    @property
    def layout(self) -> str:
        return f"per-leaf zarr{self.zarr}"

    @cached_property
    def arrays(self) -> dict[str, StoredArray]:
        every: list[_Found] = []
        for found in _found(self.directory):
            every.append(found)
            LEAVES.check(len(every), f"'{self.directory}'")
        return {found.name: found.array for found in every}

    @property
    def data_files(self) -> list[str]:
        return [below(name) + key for name, array in self.arrays.items() for key in array.keys]

    @property
    def dead_bytes(self) -> int:
        return 0

    def kvstore(self, name: str) -> dict[str, Any]:
        return filesystem.kvstore(self.directory / name)

    def encoded(self, name: str) -> dict[str, bytes] | None:
        """None: a look-up is opening a file."""
        return None

    def expect(self, names: Iterable[str], encoded: Iterable[str] = ()) -> None:
        """Nothing: every value has a file of its own."""

    def stored_values(self, name: str) -> dict[str, StoredValue]:
        files = {key: self.directory / name / key for key in sorted(self.arrays[name].keys)}
        return {key: whole_file(file) for key, file in files.items()}

    def identity(self, name: str) -> Hashable:
        found = []
        for key in self.arrays[name].keys:
            status = filesystem.status(self.directory / name / key)
            found.append((key, status.st_dev, status.st_ino))
        return tuple(found)


class _Found:
    """An array's directory: its document, and the sizes of its files by key."""

    def __init__(self, directory: Path, name: str, zarr: int) -> None:
        self.name = name
        self.zarr = zarr
        document = read_small(f"{directory}/{below(name)}{DOCUMENT_NAMES[zarr]}", DOCUMENT)
        self.document = parse_at(document, directory, name)
        self.files: dict[str, int] = {}

    def has_chunks_in(self, folder: str) -> bool:
        """True for the name of a folder in its own that may hold chunks of it."""
        start = self.document.key_start
        return folder == start or (not start and folder.isdigit())

    @property
    def array(self) -> StoredArray:
        files = self.files
        if self.name == ARRAY_METADATAS:  # a leaf may be called like the folder of these sidecars
            files = {k: n for k, n in files.items() if not k.startswith(PROCESS_FILE)}
        if not self.name:  # a bare array stands among the sidecars
            own = DOCUMENT_NAMES[self.zarr]
            files = {k: n for k, n in files.items() if k == own or self.document.is_chunk(k)}
        keys = sorted(files, key=lambda key: key.split("/"))  # on records are digests in this order
        return StoredArray(
            self.name,
            self.document,
            tuple(keys),
            sum(files.values()),
            empty_keys=tuple(key for key in keys if not files[key]),
        )


def _listed(directory: Path) -> Iterator[tuple[str, list[Entry]]]:
    """As ``filesystem.below``, with the documents of arrays at hand."""
    every = filesystem.below(directory)
    while some := list(islice(every, _TOGETHER)):
        entries = (entry for _, inside in some for entry in inside if entry.is_file)
        names = DOCUMENT_NAMES.values()
        fetch_together([e.place for e in entries if e.name in names and e.size <= _SMALL_BYTES])
        yield from some


def _found(directory: Path) -> Iterator[_Found]:
    """The arrays below ``directory``, sorted, from one listing of it all; each is whole once the last has come.

    What stands inside tells an array, not the name: a leaf may be called like a folder of sidecars. A bare array that
    is the whole tree has the empty name. Arrays nest where keys have slashes, also in folders of chunks of others.
    """
    holders: dict[str, list[tuple[_Found, str]]] = {}
    """Of folders to come that may hold chunks: the arrays, with what their keys begin with there."""
    chunks_alone: dict[str, bool] = {}
    """Folders to come that hold chunks and no arrays; False: unless it is an array itself."""
    for prefix, entries in _listed(directory):
        folders = [entry.name for entry in entries if entry.is_folder]
        files = [entry for entry in entries if entry.is_file]
        if len(folders) + len(files) < len(entries):  # a link that leads nowhere is a missing chunk
            refuse_special_among(entries)
        zarr = _document_among(entries)
        holds_chunks_alone = chunks_alone.pop(prefix, None)
        if holds_chunks_alone is False:
            holds_chunks_alone = zarr is None
        for array, start in holders.pop(prefix, ()):
            if zarr is None:
                inside = folders
                array.files |= {start + file.name: file.size for file in files}
            elif (
                array.document.key_start
            ):  # where an array of that very name stands, digits may be chunks of both
                inside = [name for name in folders if name.isdigit()]
                array.files |= {start + f.name: f.size for f in files if f.name.isdigit()}
            else:
                continue
            for name in inside:
                holders.setdefault(f"{prefix}{name}/", []).append((array, f"{start}{name}/"))
        if holds_chunks_alone:
            chunks_alone |= {f"{prefix}{name}/": True for name in folders}
        elif zarr is not None:
            array = _Found(directory, prefix[:-1], zarr)
            array.files |= {file.name: file.size for file in files}
            for name in filter(array.has_chunks_in, folders):
                holders.setdefault(f"{prefix}{name}/", []).append((array, f"{name}/"))
                if zarr == 3:
                    chunks_alone[f"{prefix}{name}/"] = False
            yield array


def _versions(directory: Path) -> Iterator[int]:
    """The zarr versions of the array documents below ``directory``."""
    listed = (_document_among(entries) for _, entries in filesystem.below(directory))
    return (version for version in listed if version is not None)


def _document_among(entries: list[Entry]) -> int | None:
    """The zarr version of the array whose document is among what stands in its folder."""
    names = {entry.name for entry in entries if entry.is_file}
    return next((v for v, name in reversed(DOCUMENT_NAMES.items()) if name in names), None)
