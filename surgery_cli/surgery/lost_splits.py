"""Leaves that were split over a mesh, and are not any more: its devices do not divide what an edit made of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from surgery_cli.draft.expression import stored_in
from surgery_cli.draft.recipe import SOURCE, Draft
from surgery_cli.store.open.item import PytreeItem
from surgery_cli.store.write.item_plan import ItemPlan, PlannedLeaf, Way
from surgery_cli.store.write.shardings import sharding_of
from surgery_cli.tree.listing import in_listed_order
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.sharding import NamedSharding
from surgery_cli.words.lists import listed, quoted
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage

_SHOWN: Final = 4


class _Lost(NamedTuple):
    """Axes of a mesh over which a leaf is no longer split; ``is_here``: of the mesh on which it is now."""

    axes: tuple[str, ...]
    is_here: bool


def lost_splits(draft: Draft, plans: Mapping[str, ItemPlan]) -> list[Consequence]:
    """A note for leaves that are split over fewer axes of a mesh than the leaves that they continue."""
    found: dict[_Lost, list[LeafPath]] = {}
    for plan in plans.values():
        if isinstance(plan.item, PytreeItem):
            for leaf in plan.of(Way.ENCODE, Way.ARRANGE, Way.GRAFT, Way.RAW):
                lost = _lost(draft, plan.item, leaf)
                if lost is not None and lost.axes:
                    found.setdefault(lost, []).append(leaf.draft_path)
    return [_note(lost, paths) for lost, paths in found.items()]


def _lost(draft: Draft, item: PytreeItem, leaf: PlannedLeaf) -> _Lost | None:
    home = leaf.output.home
    if home is None or leaf.output.is_resharded:
        return None
    stored = {part.ref: part.spec for part in stored_in(leaf.output.recipe)}
    spec = draft.source_tree[home.path] if home.source == SOURCE else stored.get(home)
    was = NamedSharding.of_text(None if spec is None else spec.sharding)
    if was is None or not was.partition:
        return None
    now = NamedSharding.of_text(sharding_of(item, leaf))
    left = {name for axes in (() if now is None else now.partition) for name in axes}
    lost = tuple(name for axes in was.partition for name in axes if name not in left)
    return _Lost(lost, now is not None and now.mesh == was.mesh)


def _note(lost: _Lost, paths: list[LeafPath]) -> Consequence:
    over = listed([f"`{axis}`" for axis in lost.axes], word="and")
    mesh = (
        "the mesh, as the new shape cannot be" if lost.is_here else "the mesh that they come from"
    )
    return Consequence(
        DocsPage.SHARDINGS_OF_EDITS,
        f"no longer split over {over} of {mesh}: {quoted(in_listed_order(paths), _SHOWN)};"
        " a restore that names no shardings puts more on each device, and `reshard` lays out anew",
    )
