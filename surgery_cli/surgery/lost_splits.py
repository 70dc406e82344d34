"""Leaves that were split over a mesh, and are not any more: its devices do not divide what an edit made of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

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


def lost_splits(draft: Draft, plans: Mapping[str, ItemPlan]) -> list[Consequence]:
    """A note for leaves that are split over fewer axes of their mesh than the leaves that they continue."""
    found: dict[tuple[str, ...], list[LeafPath]] = {}
    for plan in plans.values():
        if isinstance(plan.item, PytreeItem):
            for leaf in plan.of(Way.ENCODE, Way.ARRANGE):
                if lost := tuple(_lost(draft, plan.item, leaf)):
                    found.setdefault(lost, []).append(leaf.draft_path)
    return [_note(axes, paths) for axes, paths in found.items()]


def _lost(draft: Draft, item: PytreeItem, leaf: PlannedLeaf) -> Iterator[str]:
    """The axes of the mesh over which what a leaf continues was split, and it is not."""
    home = leaf.output.home
    if home is None or leaf.output.is_resharded:
        return
    stored = {part.ref: part.spec for part in stored_in(leaf.output.recipe)}
    spec = draft.source_tree[home.path] if home.source == SOURCE else stored.get(home)
    was = NamedSharding.of_text(None if spec is None else spec.sharding)
    if was is None or not was.partition:
        return
    now = NamedSharding.of_text(sharding_of(item, leaf))
    if now is None or now.mesh != was.mesh:  # among leaves over another one
        return
    left = {name for axes in now.partition for name in axes}
    yield from (name for axes in was.partition for name in axes if name not in left)


def _note(axes: tuple[str, ...], paths: list[LeafPath]) -> Consequence:
    over = listed([f"`{axis}`" for axis in axes], word="and")
    named = quoted(in_listed_order(paths), _SHOWN)
    return Consequence(
        DocsPage.SHARDINGS_OF_EDITS,
        f"no longer split over {over} of the mesh, as the new shape cannot be: {named}; a restore that"
        " names no shardings puts more on each device, and `reshard` lays out anew",
    )
