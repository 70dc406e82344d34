"""One file of leaves that breaks off: what was in it, and a new one of what is left."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from surgery_cli.engine.digests import LeafDigest, digest_of_text, digest_reading, leaf_digest
from surgery_cli.errors import CheckpointError
from surgery_cli.salvage.file_leaves import FileLeaf, FileLeaves, file_leaves
from surgery_cli.salvage.leaves import SavedLeaf
from surgery_cli.salvage.structure import Origin, Structure
from surgery_cli.salvage.values import Values
from surgery_cli.salvage.writing import KeptLeaf
from surgery_cli.store import filesystem
from surgery_cli.store.files.msgpack_writing import Stored, write_msgpack
from surgery_cli.store.files.safetensors import CODES
from surgery_cli.store.filesystem.listing import starts_as_msgpack
from surgery_cli.store.filesystem.write_failures import write_errors
from surgery_cli.store.locate.file_formats import FileFormat
from surgery_cli.store.orbax.arrays import Window
from surgery_cli.store.orbax.sidecars import Entry
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind

_SUFFIXES = {".safetensors": FileFormat.SAFETENSORS, ".npz": FileFormat.NPZ}


def format_of_broken(path: Path) -> FileFormat | None:
    """The format of a file that may break off, by its name or its begin; None if it is none that is looked into."""
    if path.suffix in _SUFFIXES:
        return _SUFFIXES[path.suffix]
    return FileFormat.FLAX if starts_as_msgpack(path) else None


class BrokenFile:
    """Everything of a tree that can be found in a file. Nothing is written there."""

    def __init__(self, path: Path, form: FileFormat) -> None:
        self.directory = path
        self.form = form
        self.odd_types: dict[LeafPath, str] = {}
        self.values = Values()

    @cached_property
    def found(self) -> FileLeaves:
        return file_leaves(self.directory, self.form)

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
            found[path] = self._leaf(path, leaf, recorded.get(path), memory_bytes)
            read(0 if leaf.spec is None else leaf.spec.bytes)
        return found

    def _leaf(
        self, path: LeafPath, leaf: FileLeaf, known: LeafDigest | None, memory_bytes: int
    ) -> SavedLeaf:
        if leaf.spec is None or leaf.read is None:
            return SavedLeaf(
                path=path, entry={}, state="lost", share=0.0, why=leaf.why, spec=leaf.spec
            )
        spec, read = leaf.spec, leaf.read
        if spec.kind is LeafKind.EMPTY:
            return SavedLeaf(path=path, entry={}, state="whole", value=spec.empty, spec=spec)
        try:
            text = read(None) if spec.kind is LeafKind.STRING else None
            digest = digest_of_text(text)
            if text is None:
                grid = None if known is None or len(known.grid) != len(spec.shape) else known.grid
                reading = digest_reading(spec, memory_bytes, grid)
                digest = leaf_digest(_Read(read), path, spec, reading, grid)
        except CheckpointError as error:
            why = error.problems[0].why
            return SavedLeaf(path=path, entry={}, state="lost", share=0.0, why=why, spec=spec)
        if known is not None and digest != known:
            why = "it decodes, and its values are not those of the digest on record"
            return SavedLeaf(path=path, entry={}, state="lost", share=0.0, why=why, spec=spec)
        return SavedLeaf(
            path=path,
            entry={},
            state="whole",
            value=text,
            spec=spec,
            digest=digest if text is None else None,
            proof="digest" if known else "checksum" if leaf.has_checksum else "decodes",
        )

    def write(self, kept: list[KeptLeaf], target: Path) -> None:
        """Write a file of the same format with these leaves.

        Raises:
            WriteError: the disk does not take it.
        """
        paths = [one.leaf.path for one in kept]
        with write_errors(target.name):
            if self.found.source is not None:
                write_msgpack(self.found.source, target, {path: Stored(path) for path in paths})
                return
            with filesystem.create(target) as stream:
                if self.form is FileFormat.SAFETENSORS:
                    self._write_safetensors(paths, stream)
                else:
                    self._write_npz(paths, stream)

    def _write_safetensors(self, paths: list[LeafPath], stream: Any) -> None:
        header, at = {}, 0
        for path in paths:
            spec = self.found.leaves[path].spec
            assert spec is not None
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
        for path in paths:
            stream.write(_bytes(self._values(path)))

    def _write_npz(self, paths: list[LeafPath], stream: Any) -> None:
        from numpy.lib import format as npy

        with zipfile.ZipFile(stream, "w") as archive:
            for path in paths:
                raw = io.BytesIO()
                npy.write_array(raw, self._values(path), allow_pickle=False)
                archive.writestr(f"{path[0]}.npy", raw.getvalue())

    def _values(self, path: LeafPath) -> Any:
        read = self.found.leaves[path].read
        assert read is not None
        return read(None)


def _bytes(values: Any) -> bytes:
    import numpy as np

    return np.ascontiguousarray(values).reshape(-1).view(np.uint8).tobytes()


class _Read:
    """One leaf, read under whatever path."""

    def __init__(self, read: Callable[[Window | None], Any]) -> None:
        self._read = read

    def read(self, path: LeafPath, window: Window | None = None) -> Any:
        return self._read(window)
