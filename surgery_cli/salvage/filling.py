"""What stands for leaves that are lost, or for chunks of them: another checkpoint's, or what a script begins with."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from surgery_cli.compute.numpy_dtypes import numpy_dtype
from surgery_cli.engine.digests import digest_reading, leaf_digest
from surgery_cli.errors import Gathering, PlanError
from surgery_cli.proof.records import checked
from surgery_cli.salvage.decoded_arrays import spec_of
from surgery_cli.salvage.item import BrokenItem
from surgery_cli.salvage.leaves import SavedLeaf
from surgery_cli.salvage.older_steps import path_there
from surgery_cli.salvage.shapes_on_record import RecordedShapes
from surgery_cli.salvage.survey import Survey
from surgery_cli.salvage.writing import KeptLeaf
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.open.file_item import FileItem
from surgery_cli.store.orbax.arrays import ArrayStore, Window, read_array
from surgery_cli.store.orbax.new_documents import encoded, grid_within, new_document
from surgery_cli.store.orbax.stored_values import StoredValue
from surgery_cli.store.orbax.zarr import DOCUMENT_NAMES, ArrayDocument, parse
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec

FillBy: TypeAlias = Literal["leaf", "chunk"]


class Fill(NamedTuple):
    """What fills a leaf that is not whole: the leaf of the result, and where its values come from, for people."""

    kept: KeptLeaf
    origin: str
    spec: LeafSpec
    """What it is there."""

    @property
    def type_text(self) -> str:
        """What it is there, if nothing that is left says what it was."""
        is_said = _is_described(self.kept.leaf) or not self.spec.has_array
        return "" if is_said else self.spec.type_text


class OfAnother(msgspec.Struct, frozen=True):
    """An array of another checkpoint: all of it, or the ``blocks`` that are missing."""

    store: ArrayStore
    name: str
    blocks: tuple[Window, ...] = ()

    @property
    def is_whole(self) -> bool:
        return not self.blocks

    def stored(self, zarr: int) -> Mapping[str, StoredValue]:
        return self.store.stored_values(self.name)

    def read(self, window: Window) -> Any:
        return read_array(self.store, self.name, window)


class OfScript(msgspec.Struct, frozen=True):
    """An array as the script's function makes it: all of it, or the ``blocks`` that are missing."""

    values: Any
    document: ArrayDocument
    missing: tuple[Window, ...] = ()

    @property
    def is_whole(self) -> bool:
        return not self.missing

    @property
    def blocks(self) -> Sequence[Window]:
        every = itertools.product(*map(range, self.document.grid))
        return self.missing or [self.document.window(place) for place in every]

    def stored(self, zarr: int) -> Mapping[str, StoredValue]:
        return {DOCUMENT_NAMES[zarr]: self.document.raw}

    def read(self, window: Window) -> Any:
        return self.values[window]


class OfFile(msgspec.Struct, frozen=True):
    """A leaf of another file, as it stands there."""

    item: FileItem
    path: LeafPath

    @property
    def is_whole(self) -> bool:
        return True

    @property
    def blocks(self) -> Sequence[Window]:
        return ()

    def stored(self, zarr: int) -> Mapping[str, StoredValue]:
        return {}

    def read(self, window: Window) -> Any:
        return self.item.read(self.path, window)


def fills_of(
    survey: Survey, other: Checkpoint, fill_by: FillBy, memory_bytes: int
) -> dict[LeafPath, Fill]:
    """What the other checkpoint gives of what is not whole, by path in the whole tree. Its values are read once.

    Raises:
        PlanError: it has no such leaf, or one of another shape or dtype; all of them at once.
        CheckpointError: a leaf of it does not decode, or not to the values that are on record of it.
    """
    source = checked(other)
    recorded: dict[str, RecordedShapes] = {}

    def fill(name: str, leaf: SavedLeaf) -> Fill:
        path, item = path_there(other, survey.place, name, leaf.path), survey.items[name]
        if isinstance(item, BrokenItem):
            shapes = recorded.setdefault(name, RecordedShapes(item))
            kept = _of_another(path, leaf, other, item.zarr, shapes, fill_by)
        else:
            kept = _of_file(path, leaf, other)
        spec = other.tree[path]
        if not spec.has_array:
            return Fill(kept, other.address, spec)
        digest = leaf_digest(source, path, spec, digest_reading(spec, memory_bytes))
        if kept.filled is not None and kept.filled.is_whole:
            kept = kept._replace(leaf=msgspec.structs.replace(leaf, digest=digest))
        return Fill(kept, other.address, spec)

    return _fills(survey, fill)


def fills_of_script(
    survey: Survey, values: Mapping[LeafPath, Any], name: str, fill_by: FillBy
) -> dict[LeafPath, Fill]:
    """What the function called ``name`` gives of what is not whole; ``values`` are its leaves by path.

    Raises:
        PlanError: it gives no such leaf, or one of another shape or dtype; all of them at once.
    """
    recorded: dict[str, RecordedShapes] = {}

    def fill(item_name: str, leaf: SavedLeaf) -> Fill:
        path, item = survey.path(item_name, leaf.path), survey.items[item_name]
        assert isinstance(item, BrokenItem)  # of a file, no function is asked for
        if path not in values:
            raise PlanError(
                f"'{name}' returns no '{path}'",
                why="it is to fill what is lost of it",
                fix="name the function that makes what was saved there",
            )
        shapes = recorded.setdefault(item_name, RecordedShapes(item))
        kept = _of_script(path, leaf, values[path], name, item, shapes, fill_by)
        if not isinstance(kept.filled, OfScript):
            return Fill(kept, name, LeafSpec(kind=LeafKind.STRING))
        made = kept.filled.values
        return Fill(
            kept, name, LeafSpec(kind=LeafKind.NUMPY, shape=made.shape, dtype=made.dtype.name)
        )

    return _fills(survey, fill)


def _fills(survey: Survey, fill: Callable[[str, SavedLeaf], Fill]) -> dict[LeafPath, Fill]:
    found: dict[LeafPath, Fill] = {}
    gathering = Gathering()
    for name, leaves in survey.leaves.items():
        for inner, leaf in leaves.items():
            if leaf.state != "whole":
                path = survey.path(name, inner)
                with gathering.catching(path=str(path)):
                    found[path] = fill(name, leaf)
    gathering.raise_if_any()
    return found


def _of_file(path: LeafPath, leaf: SavedLeaf, other: Checkpoint) -> KeptLeaf:
    if path not in other.tree:
        raise _has_none(path, other)
    item, inner = other.item_of(path)
    assert isinstance(item, FileItem)
    spec = other.tree[path]
    _refuse_another_type(path, leaf, spec, other.address)
    value = other.read(path) if spec.kind is LeafKind.STRING else leaf.value
    return KeptLeaf(msgspec.structs.replace(leaf, value=value), OfFile(item, inner))


def _has_none(path: LeafPath, other: Checkpoint) -> PlanError:
    return PlanError(
        f"'{other.address}' has no '{path}'",
        why="it is to fill what is lost of it",
        fix="name an older step of the same run",
    )


def _of_another(
    path: LeafPath,
    leaf: SavedLeaf,
    other: Checkpoint,
    zarr: int,
    shapes: RecordedShapes,
    fill_by: FillBy,
) -> KeptLeaf:
    if path not in other.tree:
        raise _has_none(path, other)
    stored, spec = other.array_of(path), other.tree[path]
    if spec.kind is LeafKind.STRING:
        return KeptLeaf(msgspec.structs.replace(leaf, value=other.read(path)))
    if stored is None:
        raise PlanError(
            f"'{path}' of '{other.address}' is no stored array",
            why=f"it is {spec.type_text}",
            fix="fill from an Orbax checkpoint of the same layout",
        )
    store, array = stored
    _refuse_another_type(path, leaf, spec, other.address, shapes)
    if store.zarr != zarr:
        raise PlanError(
            f"'{other.address}' is stored as zarr {store.zarr}, and what is left as zarr {zarr}",
            fix="name an older step of the same run",
        )
    return KeptLeaf(leaf, OfAnother(store, array.name, blocks_of(leaf, fill_by)))


def _of_script(
    path: LeafPath,
    leaf: SavedLeaf,
    value: Any,
    name: str,
    item: BrokenItem,
    shapes: RecordedShapes,
    fill_by: FillBy,
) -> KeptLeaf:
    import numpy as np

    if isinstance(value, str):
        return KeptLeaf(msgspec.structs.replace(leaf, value=value))
    values = np.asarray(value)
    own = leaf.array
    if not hasattr(value, "dtype") and own is not None:  # a Python number has no width
        values = values.astype(numpy_dtype(own.document.dtype))
    spec = LeafSpec(kind=LeafKind.NUMPY, shape=values.shape, dtype=values.dtype.name)
    _refuse_another_type(path, leaf, spec, name, shapes)
    if own is not None:
        return KeptLeaf(leaf, OfScript(values, own.document, blocks_of(leaf, fill_by)))
    like = next((array.document for array in item.arrays.values()), None)
    grid = grid_within(spec.shape, spec.dtype)
    raw = encoded(new_document(item.zarr, spec.shape, spec.dtype, like, grid))
    return KeptLeaf(leaf, OfScript(values, parse(raw)))


def _is_described(leaf: SavedLeaf) -> bool:
    return leaf.array is not None or leaf.spec is not None


def _refuse_another_type(
    path: LeafPath,
    leaf: SavedLeaf,
    spec: LeafSpec,
    where: str,
    shapes: RecordedShapes | None = None,
) -> None:
    """Refuse what has another shape or dtype than is known of the leaf that was lost.

    Raises:
        PlanError: so.
    """
    own = leaf.spec if leaf.array is None else spec_of(leaf.array, LeafKind.ARRAY)
    why = ""
    if own is not None and (own.shape, own.dtype) != (spec.shape, spec.dtype):
        why = f"it is {spec.type_text}, and was {own.type_text}"
    elif own is None and shapes and (against := shapes.against(leaf.path, spec.shape)):
        why = f"it is {spec.type_text}, and what is lost {against}"
    if why:
        raise PlanError(
            f"'{path}' of '{where}' does not fit",
            why=why,
            fix="name what has the same leaves: an older step of the run, or its own script",
        )


def blocks_of(leaf: SavedLeaf, fill_by: FillBy) -> tuple[Window, ...]:
    """The blocks alone that are missing of a leaf, if they are to be filled, and the others are there."""
    blocks = leaf.missing if fill_by == "chunk" and leaf.state == "partly" else ()
    return tuple(tuple(slice(*axis) for axis in block) for block in blocks)
