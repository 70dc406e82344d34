"""What is stored in an OCDBT database, by one walk of its B-tree: every key, where its value lies, what is dead."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

from surgery_cli.errors import CheckpointError
from surgery_cli.inputs.buckets import ServiceRefusal
from surgery_cli.inputs.limits import STORED_VALUES
from surgery_cli.inputs.regular_files import refuse_special
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import unreadable
from surgery_cli.store.filesystem.local_disk import check_link
from surgery_cli.store.orbax.btree_nodes import (
    ALL_KEYS,
    MANIFEST,
    Keys,
    check_height,
    check_keys,
    folder_of_manifest,
    kept_alone,
    reader_of,
    refuse_changed,
)
from surgery_cli.store.orbax.contexts import failure_of_service, first_line
from surgery_cli.store.orbax.extents import Extent, extent_at
from surgery_cli.store.orbax.stored_values import truncated
from surgery_cli.store.orbax.zarr import DOCUMENT_NAMES

PROCESS_PREFIX = "ocdbt.process_"
"""Databases that Orbax's processes write, below the one into which they are merged."""

DONOR_PREFIX = "ocdbt.donor_"
"""Databases that surgery puts below the target, to refer to their values."""

DATA_FOLDERS = ("d", "ocdbt_data", "ocdbt_meta")
"""Folders of a database that hold its data files."""

_DOCUMENTS = tuple(f"/{name}".encode() for name in DOCUMENT_NAMES.values())
_NODES_AT_ONCE = 2
"""Orbax lets a node hold 100 MB, which are several hundred as Python objects: one is read, one is taken in."""


Values: TypeAlias = dict[bytes, bytes | Extent]
"""Stored values by key: inline bytes, or where they lie."""


class Survey:
    """The keys of an OCDBT database with the place of each value: inline bytes or an extent.

    ``known``: a survey of another database. A node that lies in the very same file as there, linked into this
    database, is not read again: files of a database never change.
    """

    def __init__(self, directory: Path, known: Survey | None = None, opened: Any = None) -> None:
        """Walk the newest version of the database; ``opened``: the folder, of which some is in memory, as it stands.

        Raises:
            CheckpointError: the manifest or a node of the tree is missing or damaged.
        """
        import tensorstore as ts

        self.directory = directory
        self.values: Values = {}
        self.nodes: list[Extent] = []
        self.leaf_nodes: dict[tuple[str, bytes], Values] = {}
        """The values of every leaf of the B-tree, by its location and what its keys begin with."""
        self.nodes_in_memory: dict[str, bytes] = {}
        """Objects of a bucket that were read as they are: a root that is one by itself."""
        self._count = 0
        shared = {} if known is None else known.leaf_nodes_shared_with(directory)
        refuse_special(directory / MANIFEST)
        try:
            self.opened = folder_of_manifest(directory) if opened is None else opened
            """The folder, of which no more may be there than the manifest and ``nodes_in_memory``."""
            self.manifest: dict[str, Any] = ts.ocdbt.dump(self.opened).result()
            self._walk(opened, shared)
        except ServiceRefusal as error:
            raise unreadable(directory / MANIFEST, error) from error
        except (ValueError, KeyError, IndexError, OSError) as error:
            failure = failure_of_service(directory, error)
            if failure is None and opened is None:
                refuse_changed(self.directory, self.files)
                self.check_files()  # a node's as well
            raise failure or CheckpointError(
                f"the store in '{directory}' cannot be read",
                why=first_line(error),
                fix="a file is missing, truncated or damaged; copy the checkpoint again from where it was whole",
            ) from error

    def _walk(self, opened: Any | None, shared: Mapping[tuple[str, bytes], Values]) -> None:
        """Every node of the newest version; those that are ``shared`` are known."""
        newest = self.manifest["versions"][-1]
        root = newest["root"]
        waiting = deque(
            [(root["location"], b"", newest["root_height"], ALL_KEYS)] if "location" in root else []
        )
        reading: deque[tuple[str, bytes, int, Keys, Any]] = deque()
        ask, nearby = reader_of(self.directory, opened), reader_of(self.directory, self.opened)
        if waiting and opened is None and waiting[0][:2] not in shared:
            self.nodes_in_memory = kept_alone(self.directory, extent_at(waiting[0][0]), self.opened)
        while waiting or reading:
            while waiting and len(reading) < _NODES_AT_ONCE:
                node = waiting.popleft()
                file = extent_at(node[0]).file
                refuse_special(self.directory / file)
                reader = nearby if file in self.nodes_in_memory else ask
                future = None if node[:2] in shared else reader(node[0])
                reading.append((*node, future))
            location, prefix, height, keys, future = reading.popleft()
            self.nodes.append(extent_at(location))
            if future is None:
                self._add(location, prefix, shared[location, prefix])
                continue
            content = future.result()
            self._count_in(content["entries"])
            check_height(content, height)
            found = [prefix + entry["key"] for entry in content["entries"]]
            check_keys(found, keys)
            if height:
                waiting += [
                    (e["location"], prefix + e["subtree_common_prefix"], height - 1, span)
                    for e, span in zip(content["entries"], pairwise([*found, keys[1]]), strict=True)
                ]
            else:
                self._add(location, prefix, _values(content["entries"], prefix))

    def _count_in(self, entries: list[dict[str, Any]]) -> None:
        """Count what a node holds: one that leads to itself, or several to one, make more than any database has."""
        self._count += len(entries)
        STORED_VALUES.check(self._count, f"the store in '{self.directory}'")

    def _add(self, location: str, prefix: bytes, values: Values) -> None:
        self.leaf_nodes[location, prefix] = values
        self.values.update(values)

    @property
    def is_in_memory(self) -> bool:
        """True if TensorStore needs to read nothing of the database but values."""
        return all(node.file in self.nodes_in_memory for node in self.nodes)

    def leaf_nodes_shared_with(self, directory: Path) -> dict[tuple[str, bytes], Values]:
        """Of this database's nodes, those that lie in files which also stand, linked, in ``directory``."""
        is_shared: dict[str, bool] = {}
        for location, _ in self.leaf_nodes:
            file = extent_at(location).file
            if file not in is_shared:
                is_shared[file] = _is_same_file(self.directory / file, directory / file)
        return {
            node: values
            for node, values in self.leaf_nodes.items()
            if is_shared[extent_at(node[0]).file]
        }

    def read_all(self, wanted: Mapping[str, bytes | Extent]) -> dict[str, bytes]:
        """Stored values, by whatever they are to be called (small ones: documents, chunks of small arrays).

        Raises:
            CheckpointError: a data file ends before a value does.
        """
        found: dict[str, bytes] = {}
        by_file: dict[str, dict[str, Extent]] = {}
        for name, value in wanted.items():
            if isinstance(value, bytes):
                found[name] = value
            else:
                by_file.setdefault(value.file, {})[name] = value
        for file, extents in by_file.items():
            with filesystem.reader(self.directory / file) as stream:
                for name, extent in extents.items():
                    stream.seek(extent.offset)
                    found[name] = stream.read(extent.length)
                    if len(found[name]) != extent.length:
                        raise truncated(self.directory / file, extent.offset, extent.length)
        return found

    @cached_property
    def files(self) -> dict[str, list[Extent]]:
        """Every data file that the newest version needs, with the ranges that are alive in it."""
        found: dict[str, list[Extent]] = {}
        for extent in self.extents():
            found.setdefault(extent.file, []).append(extent)
        return found

    def extents(self) -> Iterator[Extent]:
        yield from self.nodes
        for value in self.values.values():
            if isinstance(value, Extent):
                yield value

    def check_files(self) -> None:
        """Every data file is there and long enough.

        Raises:
            CheckpointError: a file is missing, truncated, or a directory.
        """
        for file, extents in self.files.items():
            needed = max(e.offset + e.length for e in extents)
            path = self.directory / file
            refuse_special(path)
            actual = filesystem.size(path) if filesystem.is_file(path) else -1
            if actual < needed:
                is_folder = actual < 0 and filesystem.is_folder(path)
                state = "a directory" if is_folder else "missing" if actual < 0 else "truncated"
                raise CheckpointError(
                    f"the data file '{path}' is {state}",
                    why=f"the store refers to {needed} bytes of it"
                    + (f", it has {actual}" if actual >= 0 else ""),
                    fix="copy the checkpoint again from where it was whole",
                )

    def live_bytes(self) -> int:
        """Bytes of data files that something refers to."""
        total = 0
        for extents in self.files.values():
            end = 0
            for extent in sorted(extents, key=lambda e: e.offset):
                start = max(extent.offset, end)
                stop = extent.offset + extent.length
                total += max(stop - start, 0)
                end = max(end, stop)
        return total

    def file_bytes(self) -> int:
        """Bytes of all data files in the directory that belong to the database, dead ones included."""
        return sum(filesystem.size(self.directory / file) for file in self.all_files())

    def all_files(self) -> list[str]:
        """Data files of the database on disk, referred to or not, relative to its directory."""
        on_disk = {
            str((folder / sub / entry.name).relative_to(self.directory))
            for folder in (self.directory, *database_folders(self.directory))
            for sub in DATA_FOLDERS
            for entry in filesystem.entries_if_any(folder / sub)
            if entry.is_file
        }
        return sorted(on_disk.union(self.files))


def database_folders(directory: Path) -> list[Path]:
    """Databases below a database, innermost first: a donor's has the databases of its own processes and donors."""
    found = []
    for entry in filesystem.entries_if_any(directory):
        if entry.is_folder and entry.name.startswith((PROCESS_PREFIX, DONOR_PREFIX)):
            check_link(entry.place)
            found += [*database_folders(directory / entry.name), directory / entry.name]
    return found


def _values(entries: list[dict[str, Any]], prefix: bytes) -> Values:
    """The values that a leaf of the B-tree holds; array documents that are the same are one object."""
    found: Values = {}
    documents: dict[bytes, bytes] = {}
    for entry in entries:
        key, inline = prefix + entry["key"], entry.get("inline_value")
        if inline is None:
            found[key] = extent_at(entry["indirect_value"])
        elif key.endswith(_DOCUMENTS):
            found[key] = documents.setdefault(inline, inline)
        else:
            found[key] = inline
    return found


def _is_same_file(one: Path, other: Path) -> bool:
    try:
        left, right = filesystem.status(one), filesystem.status(other)
    except OSError:
        return False
    return (left.st_dev, left.st_ino) == (right.st_dev, right.st_ino)
