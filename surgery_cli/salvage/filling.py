"""What stands for leaves that are lost, and for chunks of those that are partly there: another checkpoint's."""

from __future__ import annotations

from typing import Literal, TypeAlias

from surgery_cli.errors import Gathering, PlanError
from surgery_cli.salvage.item import BrokenItem, spec_of
from surgery_cli.salvage.leaves import SavedLeaf
from surgery_cli.salvage.survey import Survey
from surgery_cli.salvage.writing import Filled
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind

Fill: TypeAlias = Literal["leaf", "chunk"]


def fills_of(survey: Survey, other: Checkpoint, fill_by: Fill) -> dict[LeafPath, Filled]:
    """What the other checkpoint gives of what is not whole.

    Raises:
        PlanError: it has no such leaf, or one of another shape or dtype; all of them at once.
    """
    found: dict[LeafPath, Filled] = {}
    gathering = Gathering()
    for name, leaves in survey.leaves.items():
        for inner, leaf in leaves.items():
            if leaf.state != "whole":
                path = survey.path(name, inner)
                with gathering.catching(path=str(path)):
                    found[path] = _fill(survey.items[name], path, leaf, other, fill_by)
    gathering.raise_if_any()
    return found


def _fill(
    item: BrokenItem, path: LeafPath, leaf: SavedLeaf, other: Checkpoint, fill_by: Fill
) -> Filled:
    if path not in other.tree:
        raise PlanError(
            f"'{other.location.argument}' has no '{path}'",
            why="it is to fill what is lost of it",
            fix="name an older step of the same run",
        )
    stored, spec = other.array_of(path), other.tree[path]
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
    if store.zarr != item.zarr:
        raise PlanError(
            f"'{other.location.argument}' is stored as zarr {store.zarr}, and what is left as zarr {item.zarr}",
            fix="name an older step of the same run",
        )
    blocks = leaf.missing if fill_by == "chunk" and leaf.state == "partly" else ()
    windows = tuple(tuple(slice(*axis) for axis in block) for block in blocks)
    return Filled(store, array.name, windows)
