"""One file of leaves that breaks off: what was in it, and a new one of what is left."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from surgery_cli.engine.digests import LeafDigest
from surgery_cli.salvage.file_leaf import FileLeaf, FileLeaves
from surgery_cli.salvage.file_leaves import file_leaves
from surgery_cli.salvage.leaf_states import of_file
from surgery_cli.salvage.leaves import SavedLeaf
from surgery_cli.salvage.structure import Origin, Structure
from surgery_cli.salvage.values import Values
from surgery_cli.salvage.writing import KeptLeaf
from surgery_cli.store import filesystem
from surgery_cli.store.files.msgpack_tree import MsgpackFile
from surgery_cli.store.files.msgpack_writing import Stored, in_kind, write_msgpack
from surgery_cli.store.files.safetensors import CODES
from surgery_cli.store.filesystem.listing import starts_as_msgpack
from surgery_cli.store.filesystem.write_failures import write_errors
from surgery_cli.store.locate.file_formats import FileFormat
from surgery_cli.store.open.file_item import FileItem
from surgery_cli.store.orbax.sidecars import Entry
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec

_SUFFIXES = {".safetensors": FileFormat.SAFETENSORS, ".npz": FileFormat.NPZ}


def format_of_broken(path: Path) -> FileFormat | None:
    """The format of a file that may break off, by its name or its begin; None if it is none that is looked into."""
    if path.suffix in _SUFFIXES:
        return _SUFFIXES[path.suffix]
    return FileFormat.FLAX if starts_as_msgpack(path) else None


class BrokenFile:
    """Everything of a tree that can be found in a file. Nothing is written there.

    ``other`` is a whole one of the same format, which names what the file does not.
    """

    def __init__(self, path: Path, form: FileFormat, other: FileItem | None = None) -> None:
        self.directory = path
        self.form = form
        self.other = other
        self.odd_types: dict[LeafPath, str] = {}
        self.respelled: dict[str, str] = {}
        self.untrue: dict[str, dict[str, str]] = {}
        self.values = Values()

    @cached_property
    def found(self) -> FileLeaves:
        own = file_leaves(self.directory, self.form)
        if self.other is None or own.are_all_named:
            return own
        lost = FileLeaf(None, None, "it stands behind the break")
        named = {path: own.leaves.get(path, lost) for path in self.other.tree}
        nodes = self.other.tree.nodes  # the break may be in the name, or the head, of one
        rest = {p: one for p, one in own.leaves.items() if p not in named and p not in nodes}
        return own._replace(leaves=named | rest)

    @property
    def stored_bytes(self) -> int:
        """Bytes of the leaves that it names."""
        specs = (leaf.spec for leaf in self.found.leaves.values())
        return sum(spec.bytes for spec in specs if spec is not None)

    @cached_property
    def structure(self) -> Structure:
        """The leaves that the file names itself."""
        faults = {self.directory.name: self.found.fault} if self.found.fault else {}
        origin: Origin = "metadata" if self.found.are_all_named else "the file before its break"
        if self.other is not None and not self.found.are_all_named:
            origin = "another checkpoint"
        entries: dict[LeafPath, Entry] = {path: {} for path in self.found.leaves}
        return Structure(entries, origin, frozenset(), {}, faults)

    def leaves(
        self,
        memory_bytes: int,
        recorded: Mapping[LeafPath, LeafDigest],
        read: Callable[[int], None] = lambda _: None,
    ) -> dict[LeafPath, SavedLeaf]:
        """As ``BrokenItem.leaves``."""
        found = {}
        for path, leaf in self.found.leaves.items():
            known = recorded.get(path)
            found[path] = of_file(path, {}, leaf, known, memory_bytes, is_beside=True)
            read(0 if leaf.spec is None else leaf.spec.bytes)
        return found

    def write(self, kept: list[KeptLeaf], target: Path) -> None:
        """Write a file of the same format with these leaves.

        Raises:
            WriteError: the disk does not take it.
        """
        reads = {one.leaf.path: self._read_of(one) for one in kept}
        with write_errors(target.name):
            if self.found.source is not None:
                self._write_msgpack(reads, self.found.source, target)
                return
            with filesystem.create(target) as stream:
                if self.form is FileFormat.SAFETENSORS:
                    self._write_safetensors(reads, stream)
                else:
                    self._write_npz(reads, stream)

    def _read_of(self, kept: KeptLeaf) -> Callable[[], Any] | None:
        """What reads the values of a leaf of the result; None for what stands in the other file."""
        if kept.filled is not None:
            return None
        read = self.found.leaves[kept.leaf.path].read
        assert read is not None
        return partial(read, None)

    def _write_msgpack(
        self, reads: Mapping[LeafPath, Callable[[], Any] | None], own: MsgpackFile, target: Path
    ) -> None:
        """Everything as it stands in one of the two files, byte by byte; the other's is packed anew."""
        if self.other is None or None not in reads.values():
            write_msgpack(own, target, {path: Stored(path) for path in reads})
            return
        leaves: dict[LeafPath, Any] = {}
        for path, read in reads.items():
            packed = own.scan.leaves.get(path)
            leaves[path] = (
                Stored(path)
                if read is None or packed is None
                else partial(_packed, read, packed.spec, packed.code)
            )
        write_msgpack(self.other.content, target, leaves)

    def _write_safetensors(
        self, reads: Mapping[LeafPath, Callable[[], Any] | None], stream: Any
    ) -> None:
        header, at = {}, 0
        for path in reads:
            spec = self._spec(path)
            ends = [at, at + spec.bytes]
            header[str(path[0])] = {
                "dtype": CODES[spec.dtype],
                "shape": spec.shape,
                "data_offsets": ends,
            }
            at += spec.bytes
        raw = json.dumps(header).encode()
        raw += b" " * (-len(raw) % 8)
        stream.write(len(raw).to_bytes(8, "little") + raw)
        for path, read in reads.items():
            stream.write(_bytes(self._values(path, read)))

    def _write_npz(self, reads: Mapping[LeafPath, Callable[[], Any] | None], stream: Any) -> None:
        from numpy.lib import format as npy

        with zipfile.ZipFile(stream, "w") as archive:
            for path, read in reads.items():
                raw = io.BytesIO()
                npy.write_array(raw, self._values(path, read), allow_pickle=False)
                archive.writestr(f"{path[0]}.npy", raw.getvalue())

    def _spec(self, path: LeafPath) -> LeafSpec:
        spec = self.found.leaves[path].spec
        if spec is None:
            assert self.other is not None
            return self.other.tree[path]
        return spec

    def _values(self, path: LeafPath, read: Callable[[], Any] | None) -> Any:
        if read is not None:
            return read()
        assert self.other is not None
        return self.other.read(path)


def _packed(read: Callable[[], Any], spec: LeafSpec, code: int | None) -> Any:
    return in_kind(read(), spec, code)


def _bytes(values: Any) -> bytes:
    import numpy as np

    return np.ascontiguousarray(values).reshape(-1).view(np.uint8).tobytes()
