"""What stands for leaves that are lost, and for chunks of those that are partly there: another checkpoint's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from surgery_cli.errors import Gathering, PlanError
from surgery_cli.salvage.item import spec_of
from surgery_cli.salvage.leaves import SavedLeaf
from surgery_cli.salvage.survey import Survey
from surgery_cli.salvage.writing import KeptLeaf
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.orbax.arrays import ArrayStore, Window, read_array
from surgery_cli.store.orbax.stored_values import StoredValue
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind

FillBy: TypeAlias = Literal["leaf", "chunk"]


class Fill(NamedTuple):
    """What fills a leaf that is not whole: the leaf of the result, and where its values come from, for people."""

    kept: KeptLeaf
    origin: str


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


def fills_of(survey: Survey, other: Checkpoint, fill_by: FillBy) -> dict[LeafPath, Fill]:
    """What the other checkpoint gives of what is not whole, by path in the whole tree.

    Raises:
        PlanError: it has no such leaf, or one of another shape or dtype; all of them at once.
    """
    found: dict[LeafPath, Fill] = {}
    gathering = Gathering()
    for name, leaves in survey.leaves.items():
        for inner, leaf in leaves.items():
            if leaf.state != "whole":
                path = survey.path(name, inner)
                with gathering.catching(path=str(path)):
                    kept = _filled(path, leaf, other, survey.items[name].zarr, fill_by)
                    found[path] = Fill(kept, other.address)
    gathering.raise_if_any()
    return found


def _filled(
    path: LeafPath, leaf: SavedLeaf, other: Checkpoint, zarr: int, fill_by: FillBy
) -> KeptLeaf:
    if path not in other.tree:
        raise PlanError(
            f"'{other.location.argument}' has no '{path}'",
            why="it is to fill what is lost of it",
            fix="name an older step of the same run",
        )
    stored, spec = other.array_of(path), other.tree[path]
    if spec.kind is LeafKind.STRING:
        return KeptLeaf(msgspec.structs.replace(leaf, value=other.read(path)))
    if stored is None:
        raise PlanError(
            f"'{path}' of '{other.location.argument}' is no stored array",
            why=f"it is {spec.type_text}",
            fix="fill from an Orbax checkpoint of the same layout",
        )
    store, array = stored
    if leaf.array is not None:
        own = spec_of(leaf.array, LeafKind.ARRAY)
        if (own.shape, own.dtype) != (spec.shape, spec.dtype):
            raise PlanError(
                f"'{path}' of '{other.location.argument}' does not fit",
                why=f"it is {spec.type_text}, and was {own.type_text}",
                fix="name an older step of the same run",
            )
    if store.zarr != zarr:
        raise PlanError(
            f"'{other.location.argument}' is stored as zarr {store.zarr}, and what is left as zarr {zarr}",
            fix="name an older step of the same run",
        )
    return KeptLeaf(leaf, OfAnother(store, array.name, blocks_of(leaf, fill_by)))


def blocks_of(leaf: SavedLeaf, fill_by: FillBy) -> tuple[Window, ...]:
    """The blocks alone that are missing of a leaf, if they are to be filled, and the others are there."""
    blocks = leaf.missing if fill_by == "chunk" and leaf.state == "partly" else ()
    return tuple(tuple(slice(*axis) for axis in block) for block in blocks)
