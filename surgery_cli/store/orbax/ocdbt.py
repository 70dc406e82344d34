"""Arrays in an OCDBT database: the layout that Orbax writes by default."""

from __future__ import annotations

import sys
from collections.abc import Collection, Hashable, Iterable
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, TypeAlias

from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.inputs.limits import DOCUMENT, LEAVES
from surgery_cli.store import filesystem
from surgery_cli.store.orbax.arrays import ArrayStore, StoredArray, below
from surgery_cli.store.orbax.btree import Survey
from surgery_cli.store.orbax.btree_nodes import MANIFEST
from surgery_cli.store.orbax.extents import Extent, extent_at
from surgery_cli.store.orbax.stored_values import FileRange, StoredValue
from surgery_cli.store.orbax.zarr import DOCUMENT_NAMES, parse_at

_Held: TypeAlias = dict[str, bytes | Extent]
"""What is stored below a name, by the rest of its key."""

SMALL_BYTES = 1 << 20
"""Arrays of no more than this are read without looking them up in the database."""


_FAR: Final = {
    "experimental_read_coalescing_threshold_bytes": 64 << 10,
    "experimental_read_coalescing_merged_bytes": 64 << 20,
    "experimental_read_coalescing_interval": "1ms",
}
"""Where every read is a request: chunks beside each other are read in one, with the little that is between them."""


class OcdbtStore(ArrayStore):
    """The arrays of an item directory with ``manifest.ocdbt``; ``known`` is a survey of what it may be linked from."""

    def __init__(
        self, directory: Path, zarr: int | None = None, known: Survey | None = None
    ) -> None:
        super().__init__(directory)
        self._declared_zarr = zarr
        self._known = known

    @staticmethod
    def recognises(directory: Path) -> bool:
        return filesystem.is_file(directory / MANIFEST)

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
        has_zarr3 = any(key.rpartition(b"/")[2] == b"zarr.json" for key in self.survey.values)
        return 3 if has_zarr3 else 2

    @property
    def layout(self) -> str:
        return f"ocdbt zarr{self.zarr}"

    @cached_property
    def arrays(self) -> dict[str, StoredArray]:
        contents, document = self._contents(), DOCUMENT_NAMES[self.zarr]
        LEAVES.check(len(contents), f"the store in '{self.directory}'")
        for name, held in contents.items():
            DOCUMENT.check(len(held[document]), f"what describes '{name}' in '{self.directory}'")
        raw = self.survey.read_all({name: held[document] for name, held in contents.items()})
        same: dict[tuple[str, ...], tuple[str, ...]] = {}
        found = {}
        for name in sorted(contents):
            held = contents[name]
            keys, values = tuple(held), tuple(held.values())
            keys = same.setdefault(keys, keys)
            parsed = parse_at(raw[name], self.directory, name)
            found[name] = StoredArray(name, parsed, keys, sum(map(len, values)), values)
        return found

    def _contents(self) -> dict[str, _Held]:
        """For every array what is stored below its name, by key.

        A key's last slash parts name and rest, but for slashes in the keys of zarr 3's chunks and in foreign keys.
        """
        document = DOCUMENT_NAMES[self.zarr]
        folders: dict[str, _Held] = {}
        for key, value in self.survey.values.items():
            # what is no UTF-8 is foreign: Orbax never looks for it
            name, _, rest = key.decode(errors="surrogateescape").rpartition("/")
            held = folders.get(name)
            if held is None:
                held = folders[name] = {}
            held[sys.intern(rest)] = value
        found = {name: held for name, held in folders.items() if document in held}
        if self.zarr == 2 and len(found) == len(folders):
            return found
        regrouped: dict[str, _Held] = {name: {} for name in found}
        for folder, held in folders.items():
            for rest, value in held.items():
                text = f"{folder}/{rest}" if folder else rest
                name = folder if self.zarr == 2 and folder in found else self._owner(text, found)
                if name in found:
                    regrouped[name][sys.intern(text[len(below(name)) :])] = value
        return regrouped

    def _owner(self, text: str, names: Collection[str]) -> str:
        """The array that a key belongs to: the longest name that is a prefix, for names may contain slashes.

        In zarr 3 ``c/c/0`` is a chunk of ``c``, even if there is an array ``c/c``: its chunks begin ``c/c/c``. The root
        belongs to the array with the empty name, a bare one or that of an empty key.
        """
        longest, name = "", text
        while name:
            name = name.rpartition("/")[0]
            if name in names:
                rest = text[len(below(name)) :]
                if self.zarr == 2 or rest == "c" or rest.startswith(("c/", "zarr.json")):
                    return name
                longest = longest or name
        return longest

    @cached_property
    def leaf_nodes(self) -> list[tuple[bytes, Extent]]:
        """The leaves of the database's tree in the order of their keys, each with its first key."""
        held = self.survey.leaf_nodes.items()
        firsts = ((min(values), extent_at(at)) for (at, _), values in held if values)
        return sorted(firsts, key=itemgetter(0))

    @cached_property
    def dead_bytes(self) -> int:
        return self.survey.file_bytes() - self.survey.live_bytes()

    @property
    def data_files(self) -> list[str]:
        return list(self.survey.files)

    def times(self) -> list[int]:
        """When each data file was written last, in nanoseconds; by now, as a file may be written into in its place."""
        return [filesystem.status(self.directory / file).st_mtime_ns for file in self.data_files]

    @cached_property
    def shared_prefixes(self) -> frozenset[str]:
        """Names below whose prefix other arrays have keys (names with slashes): `x` where there is `x/y`.

        In zarr 3 also `x/c` where there is `x`, whose chunks lie there, and `c` beside the empty name.
        """
        names = self.arrays
        found = {
            name[:at]
            for name in names
            if "/" in name
            for at in range(len(name))
            if name[at] == "/" and name[:at] in names
        }
        found.update({""} & names.keys())
        if self.zarr == 3:
            parts = ((name, *name.rpartition("/")) for name in names)
            found.update(name for name, above, _, last in parts if last == "c" and above in names)
        return frozenset(found)

    def files_of(
        self, arrays: Iterable[StoredArray], nodes: Iterable[Extent] | None = None
    ) -> set[str]:
        """The data files that hold values of these arrays, or nodes of the tree: all, or those that are given."""
        values = (value for array in arrays for value in array.values)
        found = {value.file for value in values if isinstance(value, Extent)}
        return found.union(node.file for node in (self.survey.nodes if nodes is None else nodes))

    def kvstore(self, name: str) -> dict[str, Any]:
        return {
            "driver": "ocdbt",
            "base": self._folder,
            "path": below(name),
            **(_FAR if isinstance(self.directory, BucketPath) else {}),
        }

    @property
    def has_tree_in_memory(self) -> bool:
        """True if of a database in a bucket TensorStore needs to read nothing but values."""
        return isinstance(self.directory, BucketPath) and self.survey.is_in_memory

    @cached_property
    def _folder(self) -> dict[str, Any]:
        """Its files. What the survey has read of a bucket as it is, the manifest first, is not asked for again."""
        folder = filesystem.kvstore(self.directory)
        if not isinstance(self.directory, BucketPath):
            return folder
        import tensorstore as ts

        layers: list[dict[str, Any]] = [{"base": folder}]
        manifest = self.survey.opened.read(MANIFEST).result().value
        for name, content in {MANIFEST: manifest, **self.survey.nodes_in_memory}.items():
            near = {"driver": "memory", "path": f"{self.directory}/{name}"}
            ts.KvStore.open(near, context=self.context).result().write("", content).result()
            layers.append({"exact": name, "base": near})
        return {"driver": "kvstack", "layers": layers}

    def encoded(self, name: str) -> dict[str, bytes] | None:
        """At every look-up TensorStore checks a whole node of the tree, and Orbax puts 200,000 keys into one: what is
        looked up for each of many leaves grows with their square.
        """
        array = self.arrays[name]
        if array.stored_bytes > SMALL_BYTES:
            return None
        return self.survey.read_all(dict(zip(array.keys, array.values, strict=True)))

    def expect(self, names: Iterable[str], encoded: Iterable[str] = ()) -> None:
        wanted = list(names)
        for file, ranges in self.ranges_read(wanted, encoded).items():
            filesystem.expect(self.directory / file, ranges)
        large = (name for name in wanted if self.arrays[name].stored_bytes > SMALL_BYTES)
        if isinstance(self.directory, BucketPath) and (name := next(large, None)) is not None:
            self._look_into_database(name)

    def _look_into_database(self, name: str) -> None:
        """Let TensorStore read the nodes on the way to an array, while something else is waited for."""
        import tensorstore as ts

        self._looked_into = ts.KvStore.open(self.kvstore(name), context=self.context).result()
        self._coming = self._looked_into.read("\0")  # where there is nothing

    def ranges_read(
        self, names: Iterable[str], encoded: Iterable[str] = ()
    ) -> dict[str, list[tuple[int, int]]]:
        """Where values lie that are read past TensorStore, by data file: those of small arrays, or as ``encoded``."""
        small = (a for a in map(self.arrays.__getitem__, names) if a.stored_bytes <= SMALL_BYTES)
        found: dict[str, list[tuple[int, int]]] = {}
        for array in (*small, *map(self.arrays.__getitem__, encoded)):
            for held in array.extents:
                place = (held.offset, held.offset + held.length)
                found.setdefault(held.file, []).append(place)
        return found

    def stored_values(self, name: str) -> dict[str, StoredValue]:
        array = self.arrays[name]
        return {
            key: FileRange(self.directory / value.file, value.offset, value.length)
            if isinstance(value, Extent)
            else value
            for key, value in sorted(zip(array.keys, array.values, strict=True))
        }

    def identity(self, name: str) -> Hashable:
        array = self.arrays[name]
        found: list[Hashable] = []
        for key, value in zip(array.keys, array.values, strict=True):
            if isinstance(value, Extent):
                status = filesystem.status(self.directory / value.file)
                found.append((key, status.st_dev, status.st_ino, value.offset, value.length))
            else:
                found.append((key, value))
        return tuple(found)
