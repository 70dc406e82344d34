"""For every output leaf of an item: how its stored array comes about, decided before anything is written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from functools import cached_property
from typing import Any

import msgspec

from surgery_cli.draft.expression import Recipe, moves_elements
from surgery_cli.draft.kernels.rechunk import values_of
from surgery_cli.draft.recipe import Output
from surgery_cli.store.locate.file_formats import FileFormat
from surgery_cli.store.open.file_item import FileItem
from surgery_cli.store.open.item import Item, PytreeItem, StoredLeaf
from surgery_cli.store.orbax.arrays import ArrayStore, StoredArray
from surgery_cli.store.orbax.new_documents import encoded, grid_within, new_document, revised
from surgery_cli.store.orbax.zarr import DOCUMENT_NAMES, ArrayDocument, parse
from surgery_cli.store.write.chunk_references import Referred, Sources, Taken, referred
from surgery_cli.store.write.step_trees import StepTrees
from surgery_cli.tree.dtypes import item_bytes
from surgery_cli.tree.paths import LeafPath, stored_name
from surgery_cli.tree.specs import LeafSpec


class Way(StrEnum):
    """How a stored array gets into the new item."""

    KEEP = "keep"
    """Same store, same name: by reference."""
    MOVE = "move"
    """Same store, another name: by reference."""
    GRAFT = "graft"
    """From another store of the same kind: by reference to its files."""
    RAW = "raw"
    """From a store of another layout and the same zarr version: encoded bytes are copied, not decoded."""
    ARRANGE = "arrange"
    """Elements move, and the bytes of every stored chunk stay: by reference to chunks of the same kind of store."""
    ENCODE = "encode"
    """Values are computed or decoded, and written; a leaf of which some chunks are taken has ``Referred`` ones."""
    NONE = "none"
    """No stored array: empties, strings, values inline in ``checkpoint``."""


class PlannedLeaf(msgspec.Struct, frozen=True, gc=False):
    """An output leaf of an item: where it goes, what it is made of, and how.

    ``path`` is inside the item; ``draft_path`` in the draft. ``origin`` and ``origin_path`` are the item that holds
    the stored leaf and the path in it (None for values made of nothing), ``array`` the stored array of that leaf, if it
    has one. ``document`` is the array document to write for ENCODE and ARRANGE, ``referred`` what that array takes from
    others chunk by chunk.
    """

    path: LeafPath
    draft_path: LeafPath
    output: Output
    way: Way
    name: str
    origin: Item | None = None
    origin_path: LeafPath | None = None
    array: StoredArray | None = None
    document: dict[str, Any] | None = None
    referred: Referred | None = None

    @property
    def spec(self) -> LeafSpec:
        return self.output.spec

    @property
    def recipe(self) -> Recipe:
        """What its values are made of, in whichever chunks they are stored."""
        return values_of(self.output.recipe)

    @property
    def origin_array(self) -> StoredArray:
        """The stored array that is referred to (for KEEP, MOVE, GRAFT, RAW)."""
        assert self.array is not None
        return self.array

    @property
    def origin_store(self) -> ArrayStore:
        assert isinstance(self.origin, PytreeItem)
        assert self.origin.store is not None
        return self.origin.store

    @property
    def stored_document(self) -> tuple[str, bytes]:
        """The key of the array's document, below its name, and what is to be stored there."""
        assert self.document is not None
        return DOCUMENT_NAMES[self.document["zarr_format"]], encoded(self.document)

    @property
    def taken(self) -> tuple[Taken, ...]:
        """Stored values that are taken as they are: of whole arrays, or chunk by chunk."""
        if self.referred is not None:
            return self.referred.taken
        if self.way is Way.ENCODE or self.way is Way.NONE:
            return ()
        return (Taken(self.origin_store, self.origin_array, self.origin_array.keys),)

    @property
    def taken_bytes(self) -> int:
        """Encoded bytes of the stored values that are taken as they are, and of a document that is new."""
        count = sum(taken.array.stored_bytes for taken in self.taken)
        return count if self.referred is None else count + len(self.stored_document[1])

    @property
    def is_read_whole(self) -> bool:
        """True if all of its values pass through memory, of a leaf that is not taken as a whole."""
        return self.referred is None or self.referred.is_read

    @property
    def written_bytes(self) -> int:
        """Bytes of values that are computed or decoded, and written."""
        if self.way is not Way.ENCODE:
            return 0
        if self.referred is None:
            return self.spec.bytes
        windows = self.referred.written
        count: int = sum(math.prod(part.stop - part.start for part in one) for one in windows)
        return count * item_bytes(self.spec.dtype)


class ItemPlan(msgspec.Struct, frozen=True, dict=True):
    """All output leaves of one item, in order.

    ``is_new``: it stands beside the one that it is like, which keeps foreign files; ``step``: all trees of the step.
    """

    item: Item
    leaves: list[PlannedLeaf]
    is_new: bool = False
    step: StepTrees = StepTrees()

    @cached_property
    def _by_way(self) -> dict[Way, list[PlannedLeaf]]:
        found: dict[Way, list[PlannedLeaf]] = {}
        for leaf in self.leaves:
            found.setdefault(leaf.way, []).append(leaf)
        return found

    def of(self, *ways: Way) -> Sequence[PlannedLeaf]:
        """The leaves that come about in one of these ways, in order."""
        there = [way for way in ways if way in self._by_way]
        if len(there) < 2:
            return self._by_way[there[0]] if there else ()
        return [leaf for leaf in self.leaves if leaf.way in there]

    @cached_property
    def rearranged(self) -> list[PlannedLeaf]:
        """The leaves of which chunks are taken one by one, all of them or some."""
        return [leaf for leaf in self.of(Way.ARRANGE, Way.ENCODE) if leaf.referred is not None]

    @cached_property
    def computed(self) -> list[PlannedLeaf]:
        """The leaves whose values, or some of them, are read or made, in order."""
        ways = self.of(Way.ARRANGE, Way.ENCODE)
        return [leaf for leaf in ways if leaf.way is Way.ENCODE or leaf.is_read_whole]

    @cached_property
    def packed(self) -> list[PlannedLeaf]:
        """The leaves whose values are packed into a file, as far as they are not taken as they stand there."""
        return [
            leaf
            for leaf in self.of(Way.NONE)
            if leaf.spec.has_array
            and not (leaf.output.is_by_reference and leaf.origin is self.item)
        ]

    @property
    def made(self) -> list[PlannedLeaf]:
        """The leaves whose values are computed or read, all of them, in order to be written."""
        return [leaf for leaf in (*self.computed, *self.packed) if leaf.is_read_whole]

    @property
    def by_reference(self) -> list[PlannedLeaf]:
        """The leaves of which anything is taken by reference."""
        return [*self.of(Way.KEEP, Way.MOVE, Way.GRAFT), *self.rearranged]

    @property
    def is_untouched(self) -> bool:
        """True if every leaf stays where and as it was, and none is gone."""
        same = all(
            leaf.output.is_by_reference
            and not leaf.output.is_resharded
            and leaf.origin is self.item
            and leaf.origin_path == leaf.path
            for leaf in self.leaves
        )
        return same and len(self.leaves) == len(self.item.tree)


def planned(
    item: Item,
    path: LeafPath,
    draft_path: LeafPath,
    output: Output,
    origin: Item | None,
    origin_path: LeafPath | None,
    known: Sources | None = None,
) -> PlannedLeaf:
    """Decide how one output leaf of ``item`` comes about; ``known``: what it may be made of, to take chunks of that."""
    stored = None
    if isinstance(origin, PytreeItem) and origin_path is not None:
        stored = origin.leaves[origin_path]
    array = stored.array if stored is not None else None
    is_kept = output.is_by_reference and not (stored is not None and stored.has_foreign_dtype)
    if array is not None and origin is item and origin_path == path:
        name = array.name  # as it is stored, where no `_METADATA` ties names to paths
        if is_kept:
            return PlannedLeaf(path, draft_path, output, Way.KEEP, name, origin, path, array)
    else:
        name = stored_name(path)
    way = _way(item, name, output, origin, stored)
    document = chunks = None
    if way is Way.ENCODE:
        document = _document(item, name, output.spec, array)
        store = item.store if isinstance(item, PytreeItem) else None
        if known is not None and store is not None and moves_elements(output.recipe):
            chunks = referred(output.recipe, parse(encoded(document)), store, known)
            way = Way.ARRANGE if chunks is not None and not chunks.written else way
    rest = (origin, origin_path, array, document, chunks)
    return PlannedLeaf(path, draft_path, output, way, name, *rest)


def _way(
    item: Item, name: str, output: Output, origin: Item | None, stored: StoredLeaf | None
) -> Way:
    if not output.spec.has_array:
        return Way.NONE
    if not isinstance(item, PytreeItem):
        return Way.ENCODE if is_converted(item) else Way.NONE
    if _stays_inline(item, origin, stored):
        return Way.NONE
    if not output.is_by_reference or not isinstance(origin, PytreeItem) or stored is None:
        return Way.ENCODE
    if stored.array is None or origin.store is None or stored.has_foreign_dtype:
        return Way.ENCODE
    if origin is item:
        return Way.KEEP if stored.array.name == name else Way.MOVE
    if item.store is None or origin.store.zarr != item.store.zarr:
        return Way.ENCODE
    return Way.GRAFT if type(origin.store) is type(item.store) else Way.RAW


def is_packed(plan: ItemPlan) -> bool:
    """True if all values of an item stand in one file, and that is written anew."""
    item = plan.item
    if isinstance(item, PytreeItem):
        return item.store is None and bool(plan.packed)
    return not is_converted(item)


def is_converted(item: Item) -> bool:
    """True for formats that are only read: they come out as an Orbax directory."""
    return isinstance(item, FileItem) and item.format is not FileFormat.FLAX


def _stays_inline(item: PytreeItem, origin: Item | None, stored: StoredLeaf | None) -> bool:
    """True if the value goes into ``checkpoint``: it stood there, or the item has nowhere else."""
    if item.store is None and item.aggregate is not None:
        return True
    return origin is item and stored is not None and stored.is_inline


def _document(item: Item, name: str, spec: LeafSpec, origin: StoredArray | None) -> dict[str, Any]:
    """The array document of a written leaf, in the way of the array that stood there, or of its origin.

    Its chunks are those that ``spec`` says; where it says none, theirs.
    """
    if not isinstance(item, PytreeItem):
        chunks = grid_within(spec.write_shape or spec.shape, spec.dtype)
        return new_document(2, spec.shape, spec.dtype, grid=chunks)
    like, grids = _model(item, name, origin), (spec.write_shape, spec.chunk_shape)
    zarr = item.store.zarr if item.store else _declared_zarr(item)
    if like is None or like.zarr != zarr:
        return new_document(zarr, spec.shape, spec.dtype, _any_document(item), *grids)
    return revised(like, spec.shape, spec.dtype, *grids)


def _model(item: PytreeItem, name: str, origin: StoredArray | None) -> ArrayDocument | None:
    if item.store is not None and name in item.store.arrays:
        return item.store.arrays[name].document
    return None if origin is None else origin.document


def _any_document(item: PytreeItem) -> ArrayDocument | None:
    arrays = item.store.arrays if item.store else {}
    return next((array.document for array in arrays.values()), None)


def _declared_zarr(item: PytreeItem) -> int:
    return 3 if item.sidecars.use_zarr3 else 2
