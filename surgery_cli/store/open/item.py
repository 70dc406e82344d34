"""A pytree item: one directory (or file) that holds a tree of leaves, opened from metadata alone."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import msgspec

from surgery_cli.compute.numpy_dtypes import numpy_dtype
from surgery_cli.errors import CheckpointError
from surgery_cli.store import filesystem
from surgery_cli.store.files.contiguous import ContiguousArray
from surgery_cli.store.files.msgpack_tree import MsgpackFile
from surgery_cli.store.files.t5x import BITS_OF_BFLOAT16, ArraySpec
from surgery_cli.store.locate.ahead import OF_ITEM
from surgery_cli.store.locate.items import DIGESTED
from surgery_cli.store.open.bounds import check_paths, refuse_foreign_names
from surgery_cli.store.open.missing_data import (
    no_data,
    no_tree,
    other_place,
    refuse_incomplete,
    refuse_unnamed,
)
from surgery_cli.store.orbax.arrays import ArrayStore, StoredArray, Window, open_array, read_array
from surgery_cli.store.orbax.btree import Survey
from surgery_cli.store.orbax.ocdbt import OcdbtStore
from surgery_cli.store.orbax.per_leaf import PerLeafStore
from surgery_cli.store.orbax.sidecars import (
    AGGREGATE,
    ARRAY_METADATAS,
    EMPTY_TYPES,
    METADATA,
    STRINGS,
    Sidecars,
    kind_of,
)
from surgery_cli.tree import json_pointer
from surgery_cli.tree.paths import LeafPath, stored_name
from surgery_cli.tree.specs import LeafKind, LeafSpec, TreeSpec
from surgery_cli.words.quantities import array_text


class Item(Protocol):
    """A tree of leaves on disk, in whatever format."""

    @property
    def directory(self) -> Path:
        """The item's directory, or the file for formats that are files."""

    @property
    def layout(self) -> str: ...
    @property
    def tree(self) -> TreeSpec: ...
    @property
    def dead_bytes(self) -> int: ...
    def read(self, path: LeafPath, window: Window | None = None) -> Any:
        """A leaf's values: an array (0-d for scalars), text for strings, None for empties."""

    def fingerprint(self) -> str:
        """A digest of the metadata and of the names and sizes of the data files."""

    def identity(self, path: LeafPath) -> Hashable | None:
        """Equal for two leaves that refer to the same stored bytes; None if that cannot be told."""

    def array_of(self, path: LeafPath) -> StoredArray | ContiguousArray | None:
        """Where the values of a leaf are stored; None if that is no array of its own."""


class StoredLeaf(msgspec.Struct, frozen=True, gc=False):
    """A leaf with the place of its value: a stored array, an inline value of ``checkpoint``, or neither."""

    spec: LeafSpec
    array: StoredArray | None = None
    is_inline: bool = False
    has_foreign_dtype: bool = False
    """The bytes of the array are values of the dtype that ``spec`` says, whatever its document says."""


class ReadBefore(msgspec.Struct, frozen=True):
    """What was read before and may stand in an item again: the very same bytes are not parsed twice."""

    sidecars: Sidecars | None = None
    survey: Survey | None = None


class PytreeItem:
    """An item directory as Orbax writes it: arrays in OCDBT or per leaf, or values inline in ``checkpoint``."""

    def __init__(self, directory: Path, before: ReadBefore | None = None) -> None:
        self.directory = directory
        self._before = before or ReadBefore()

    @cached_property
    def sidecars(self) -> Sidecars:
        if filesystem.requests_at_once(self.directory) > 1:
            folder = self.directory / ARRAY_METADATAS
            processes = (folder / entry.name for entry in filesystem.entries_if_any(folder))
            filesystem.fetch([*(self.directory / name for name in OF_ITEM), *processes])
        return Sidecars(self.directory, self._before.sidecars)

    @cached_property
    def store(self) -> ArrayStore | None:
        """Where the arrays are; None if the item has none."""
        zarr3 = self.sidecars.use_zarr3
        zarr = None if zarr3 is None else (3 if zarr3 else 2)
        if OcdbtStore.recognises(self.directory):
            return OcdbtStore(self.directory, zarr, self._before.survey)
        if PerLeafStore.recognises(self.directory):
            return PerLeafStore(self.directory)
        return None

    @cached_property
    def aggregate(self) -> MsgpackFile | None:
        """The msgpack file ``checkpoint`` of older releases: the structure, and values that stand inline."""
        path = self.directory / AGGREGATE
        return MsgpackFile(path, has_arrays_beside=True) if filesystem.is_file(path) else None

    @cached_property
    def leaves(self) -> dict[LeafPath, StoredLeaf]:
        """Every leaf with the place of its value, in stored order.

        Raises:
            CheckpointError: something that metadata names is not there, or is damaged.
        """
        values = self.sidecars.values
        if values is not None:
            refuse_unnamed(values, self.directory, self.store)
            check_paths(values, self.directory / METADATA)
            return {path: self._described(path, value) for path, value in values.items()}
        if self.aggregate is not None:
            return {path: self._structured(path) for path in self.aggregate.tree}
        if self.store is None:
            raise no_tree(self.directory, self.sidecars)
        inferred = {LeafPath(name.split(".")): name for name in self.store.arrays}
        refuse_foreign_names(self.store.arrays, self.directory)
        check_paths(inferred, self.directory)
        return {path: self._stored(name, LeafKind.ARRAY) for path, name in inferred.items()}

    def _described(self, path: LeafPath, value: dict[str, Any]) -> StoredLeaf:
        """A leaf that ``_METADATA`` describes."""
        value_type, name = value["value_type"], stored_name(path)
        if value_type in EMPTY_TYPES:
            return StoredLeaf(LeafSpec(kind=LeafKind.EMPTY, empty=value_type))
        kind = kind_of(value_type, self.sidecars.key_impls.get(name))
        if kind is LeafKind.STRING:
            if json_pointer.text_at(self.sidecars.strings, name) is None:
                raise self._no_data(path, f"`{STRINGS}` has no text where Orbax looks for it")
            return StoredLeaf(LeafSpec(kind=kind, dtype="str"))
        if self.store is not None and name in self.store.arrays:
            return self._stored(name, kind)
        if self.aggregate is not None and path in self.aggregate.tree:
            return self._inline(path, kind)
        raise self._no_data(path, f"`_METADATA` describes it as '{value_type}'")

    def _no_data(self, path: LeafPath, why: str) -> CheckpointError:
        return no_data(self.directory, self.sidecars, path, why)

    def _structured(self, path: LeafPath) -> StoredLeaf:
        """A leaf of a checkpoint whose structure stands in ``checkpoint`` alone."""
        assert self.aggregate is not None
        name, own = self.aggregate.placeholders.get(path), stored_name(path)
        if name is not None:
            spec = self.aggregate.array_specs.get(path)
            if spec is None and name != own:
                raise other_place(self.directory, path, f"it refers to the array '{name}'")
            if self.store is None or name not in self.store.arrays:
                raise self._no_data(path, f"`{AGGREGATE}` refers to an array '{name}'")
            return self._stored(name, LeafKind.ARRAY) if spec is None else self._of_spec(path, spec)
        value = self.aggregate.tree[path]
        if value.kind is LeafKind.STRING and self.store is not None and own in self.store.arrays:
            why = f"it has a text that does not refer to the array '{own}', which is stored"
            raise other_place(self.directory, path, why)
        return StoredLeaf(value, is_inline=value.kind is not LeafKind.EMPTY)

    def _of_spec(self, path: LeafPath, spec: ArraySpec) -> StoredLeaf:
        """A leaf of T5X, of which a TensorStore spec speaks."""
        leaf = self._stored(spec.name, LeafKind.ARRAY)
        said, stored = (spec.fields.get("dtype", leaf.spec.dtype), spec.shape), leaf.spec
        if said != (stored.dtype, stored.shape):
            raise CheckpointError(
                f"'{path}' in '{self.directory}' is {array_text(*said)} by its TensorStore spec",
                why=f"and {stored.type_text} by what is stored in '{spec.name}'",
                fix="file and folder are of different saves; copy the checkpoint again from where it was whole",
            )
        if stored.dtype == BITS_OF_BFLOAT16:
            read = msgspec.structs.replace(stored, dtype="bfloat16")
            return StoredLeaf(read, leaf.array, has_foreign_dtype=True)
        return leaf

    @property
    def is_t5x(self) -> bool:
        """True if T5X has written it: TensorStore specs in ``checkpoint`` say where the arrays are."""
        return self.aggregate is not None and self.aggregate.t5x_version is not None

    def _inline(self, path: LeafPath, kind: LeafKind) -> StoredLeaf:
        assert self.aggregate is not None
        spec = self.aggregate.tree[path]
        if spec.kind is LeafKind.STRING:
            raise self._no_data(path, f"`{AGGREGATE}` refers to an array that does not exist")
        return StoredLeaf(msgspec.structs.replace(spec, kind=kind), is_inline=True)

    def _stored(self, name: str, kind: LeafKind) -> StoredLeaf:
        assert self.store is not None
        array = self.store.arrays[name]
        document = array.document
        # only a recorded fill value says what stands where no chunk is, and not if all were promised to be stored
        may_lack = document.has_fill_value and not self.sidecars.stores_fill_values
        refuse_incomplete(self.directory, array, may_lack=may_lack)
        spec = LeafSpec(
            kind=kind,
            shape=document.shape,
            dtype=document.dtype,
            key_impl=self.sidecars.key_impls.get(name),
            chunk_shape=document.chunk_shape,
            write_shape=document.write_shape,
            sharding=self.sidecars.sharding_of(name),
            stored_bytes=array.stored_bytes,
        )
        return StoredLeaf(spec, array)

    @property
    def is_inferred(self) -> bool:
        """True if no file says what the tree is, so that it is inferred from the arrays' names."""
        return self.sidecars.metadata is None and self.aggregate is None

    @cached_property
    def tree(self) -> TreeSpec:
        return TreeSpec({path: leaf.spec for path, leaf in self.leaves.items()})

    @property
    def layout(self) -> str:
        """``ocdbt zarr2``, ``per-leaf zarr3``, ``aggregate`` or ``structure only``."""
        if self.store is not None:
            return f"{self.store.layout} of T5X" if self.is_t5x else self.store.layout
        return "aggregate" if self.aggregate is not None else "structure only"

    @property
    def dead_bytes(self) -> int:
        return self.store.dead_bytes if self.store else 0

    def read(self, path: LeafPath, window: Window | None = None) -> Any:
        leaf = self.leaves[path]
        if leaf.array is not None:
            assert self.store is not None
            values = read_array(self.store, leaf.array.name, window)
            return values.view(numpy_dtype(leaf.spec.dtype)) if leaf.has_foreign_dtype else values
        if leaf.is_inline:
            assert self.aggregate is not None
            return self.aggregate.read(path, window)
        if leaf.spec.kind is LeafKind.STRING:
            return json_pointer.text_at(self.sidecars.strings, stored_name(path))
        return None

    def open(self, path: LeafPath) -> Any:
        """The TensorStore handle of a stored leaf; None for leaves that are not arrays of the store."""
        leaf = self.leaves[path]
        return open_array(self.store, leaf.array.name) if self.store and leaf.array else None

    def identity(self, path: LeafPath) -> Hashable | None:
        leaf = self.leaves[path]
        if leaf.array is None or self.store is None:
            return None
        return self.store.identity(leaf.array.name)

    def array_of(self, path: LeafPath) -> StoredArray | None:
        return self.leaves[path].array

    def fingerprint(self) -> str:
        return hashlib.sha256(b"".join(self._fingerprint_lines())).hexdigest()

    @property
    def digested(self) -> list[str]:
        """What the fingerprint knows byte by byte, if it is there."""
        return [*DIGESTED, *(f"{ARRAY_METADATAS}/{n}" for n in self.sidecars.array_metadata_files)]

    def _fingerprint_lines(self) -> Iterator[bytes]:
        for name in self.digested:
            path = self.directory / name
            # what was read must still be there: a fingerprint without it would be that of another checkpoint
            if name in self.sidecars.found or filesystem.is_file(path):
                with filesystem.reader(path) as stream:
                    yield f"{name}\0".encode() + hashlib.file_digest(stream, "sha256").digest()
        if isinstance(self.store, OcdbtStore):
            for file in sorted(self.store.survey.files):
                yield f"{file}\0{filesystem.size(self.directory / file)}\n".encode()
        elif self.store is not None:
            # chunks of a per-leaf store can be rewritten in place, so their times count as well
            for name, array in self.store.arrays.items():
                for key in array.keys:
                    status = filesystem.status(f"{self.directory}/{name}/{key}")
                    yield f"{name}/{key}\0{status.st_size}\0{status.st_mtime_ns}\n".encode()
