"""Arrays in an OCDBT database: the layout that Orbax writes by default."""

from __future__ import annotations

import sys
from collections.abc import Collection, Hashable, Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery_cli.store.arrays import StoredArray, new_context
from surgery_cli.store.survey import MANIFEST, Extent, Survey
from surgery_cli.store.zarr import DOCUMENT_NAMES, parse

if TYPE_CHECKING:
    import tensorstore as ts


class OcdbtStore:
    """The arrays of an item directory with ``manifest.ocdbt``; ``known`` is a survey of what it may be linked from."""

    def __init__(
        self, directory: Path, zarr: int | None = None, known: Survey | None = None
    ) -> None:
        self.directory = directory
        self._declared_zarr = zarr
        self._known = known

    @staticmethod
    def recognises(directory: Path) -> bool:
        return (directory / MANIFEST).is_file()

    @cached_property
    def survey(self) -> Survey:
        survey = Survey(self.directory, self._known)
        survey.check_files()
        return survey

    @cached_property
    def zarr(self) -> int:
        """The zarr version of all arrays of the database."""
        if self._declared_zarr is not None:
            return self._declared_zarr
        has_zarr3 = any(key.endswith(b"/zarr.json") for key in self.survey.values)
        return 3 if has_zarr3 else 2

    @property
    def layout(self) -> str:
        return f"ocdbt zarr{self.zarr}"

    @cached_property
    def context(self) -> ts.Context:
        return new_context()

    @cached_property
    def contents(self) -> dict[str, dict[str, bytes | Extent]]:
        """For every array what is stored below its name: inline bytes, or where they lie, by key."""
        suffix = f"/{DOCUMENT_NAMES[self.zarr]}".encode()
        values = self.survey.values
        names = (key[: -len(suffix)].decode() for key in values if key.endswith(suffix))
        found: dict[str, dict[str, bytes | Extent]] = {name: {} for name in sorted(names)}
        for key, value in values.items():
            text = key.decode()
            name = self._owner(text, found)
            if name:
                found[name][sys.intern(text[len(name) + 1 :])] = value
        return found

    def _owner(self, text: str, names: Collection[str]) -> str:
        """The array that a key belongs to: the longest name that is a prefix, for names may contain slashes.

        In zarr 3 ``c/c/0`` is a chunk of ``c``, even if there is an array ``c/c``: its chunks begin ``c/c/c``.
        """
        name = longest = text.rpartition("/")[0]
        while name:
            if name in names:
                rest = text[len(name) + 1 :]
                if self.zarr == 2 or rest == "c" or rest.startswith(("c/", "zarr.json")):
                    return name
                longest = longest if longest in names else name
            name = name.rpartition("/")[0]
        return longest if longest in names else ""

    @cached_property
    def arrays(self) -> dict[str, StoredArray]:
        document = DOCUMENT_NAMES[self.zarr]
        contents = self.contents
        raw = self.survey.read_all({name: held[document] for name, held in contents.items()})
        return {
            name: StoredArray(name, parse(raw[name]), tuple(held), sum(map(len, held.values())))
            for name, held in contents.items()
        }

    @cached_property
    def dead_bytes(self) -> int:
        return self.survey.file_bytes() - self.survey.live_bytes()

    @property
    def symbolic_links(self) -> list[str]:
        return [file for file in self.survey.files if (self.directory / file).is_symlink()]

    @cached_property
    def shared_prefixes(self) -> frozenset[str]:
        """Names below whose prefix other arrays lie (keys with slashes): `x` where there is `x/y`."""
        names = self.arrays
        return frozenset(
            name[:at]
            for name in names
            if "/" in name
            for at in range(len(name))
            if name[at] == "/" and name[:at] in names
        )

    def extents_of(self, name: str) -> list[Extent]:
        """Where the array's values lie, those that the tree holds itself left out."""
        return [value for value in self.contents[name].values() if not isinstance(value, bytes)]

    def files_of(self, names: Iterable[str]) -> set[str]:
        """The data files that hold values of these arrays, or nodes of the tree."""
        found = {extent.file for extent in self.survey.nodes}
        for name in names:
            found.update([extent.file for extent in self.extents_of(name)])
        return found

    def kvstore(self, name: str) -> dict[str, Any]:
        return {
            "driver": "ocdbt",
            "base": {"driver": "file", "path": f"{self.directory}/"},
            "path": f"{name}/",
        }

    def identity(self, name: str) -> Hashable:
        found: list[Hashable] = []
        for key, value in self.contents[name].items():
            if isinstance(value, Extent):
                status = (self.directory / value.file).stat()
                found.append((key, status.st_dev, status.st_ino, value.offset, value.length))
            else:
                found.append((key, value))
        return tuple(found)
