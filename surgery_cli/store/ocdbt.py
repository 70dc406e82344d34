"""Arrays in an OCDBT database: the layout that Orbax writes by default."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery_cli.store.arrays import StoredArray, new_context
from surgery_cli.store.survey import MANIFEST, Extent, Survey
from surgery_cli.store.zarr import DOCUMENT_NAMES, parse

if TYPE_CHECKING:
    import tensorstore as ts


class OcdbtStore:
    """The arrays of an item directory with ``manifest.ocdbt``."""

    def __init__(self, directory: Path, zarr: int | None = None) -> None:
        self.directory = directory
        self._declared_zarr = zarr

    @staticmethod
    def recognises(directory: Path) -> bool:
        return (directory / MANIFEST).is_file()

    @cached_property
    def survey(self) -> Survey:
        survey = Survey(self.directory)
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
    def arrays(self) -> dict[str, StoredArray]:
        suffix = b"/" + DOCUMENT_NAMES[self.zarr].encode()
        values = self.survey.values
        named = [key for key in values if key.endswith(suffix)]
        documents = self.survey.read_all(named)
        names = {key[: -len(suffix)] for key in named}
        keys: dict[bytes, list[bytes]] = {name: [] for name in names}
        sizes = dict.fromkeys(names, 0)
        for key, value in values.items():
            name = _owner(key, names)
            if name is not None:
                keys[name].append(key[len(name) + 1 :])
                sizes[name] += len(value) if isinstance(value, bytes) else value.length
        return {
            name.decode(): StoredArray(
                name.decode(),
                parse(documents[name + suffix]),
                tuple(k.decode() for k in keys[name]),
                sizes[name],
            )
            for name in sorted(names)
        }

    @cached_property
    def dead_bytes(self) -> int:
        return self.survey.file_bytes() - self.survey.live_bytes()

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

    def files_of(self, name: str) -> set[str]:
        """The data files that hold an array's values."""
        values = (self.survey.values[f"{name}/{key}".encode()] for key in self.arrays[name].keys)
        return {value.file for value in values if isinstance(value, Extent)}

    def kvstore(self, name: str) -> dict[str, Any]:
        return {
            "driver": "ocdbt",
            "base": {"driver": "file", "path": f"{self.directory}/"},
            "path": f"{name}/",
        }

    def identity(self, name: str) -> Hashable:
        found: list[Hashable] = []
        for key in self.arrays[name].keys:
            value = self.survey.values[f"{name}/{key}".encode()]
            if isinstance(value, Extent):
                status = (self.directory / value.file).stat()
                found.append((key, status.st_dev, status.st_ino, value.offset, value.length))
            else:
                found.append((key, value))
        return tuple(found)


def _owner(key: bytes, names: set[bytes]) -> bytes | None:
    """The array that a key belongs to: the longest name that is a prefix (a key may contain slashes)."""
    at = key.rfind(b"/")
    while at > 0:
        if key[:at] in names:
            return key[:at]
        at = key.rfind(b"/", 0, at)
    return None
