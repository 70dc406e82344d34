"""Leaves that were split over a mesh, and are less so: its devices do not divide what an edit made of them, say."""

from __future__ import annotations

import math
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
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage

_SHOWN: Final = 4


class _Lost(NamedTuple):
    """Into how many parts for the devices of a mesh a leaf was split, and is now."""

    before: int
    now: int


def lost_splits(draft: Draft, plans: Mapping[str, ItemPlan]) -> list[Consequence]:
    """A note for leaves that are split over fewer devices of a mesh than the leaves that they continue."""
    found: dict[_Lost, list[LeafPath]] = {}
    for plan in plans.values():
        if isinstance(plan.item, PytreeItem):
            for leaf in plan.of(Way.ENCODE, Way.ARRANGE, Way.GRAFT, Way.RAW):
                lost = _lost(draft, plan, leaf)
                if lost is not None and lost.now < lost.before:
                    found.setdefault(lost, []).append(leaf.draft_path)
    return [_note(lost, paths) for lost, paths in found.items()]


def _lost(draft: Draft, plan: ItemPlan, leaf: PlannedLeaf) -> _Lost | None:
    home = leaf.output.home
    if home is None or leaf.output.is_resharded:
        return None
    stored = {part.ref: part.spec for part in stored_in(leaf.output.recipe)}
    spec = draft.source_tree[home.path] if home.source == SOURCE else stored.get(home)
    was = NamedSharding.of_text(None if spec is None else spec.sharding)
    if spec is None or was is None or not was.partition:
        return None
    return _Lost(
        _parts(was, spec), _parts(NamedSharding.of_text(sharding_of(plan, leaf)), leaf.spec)
    )


def _parts(sharding: NamedSharding | None, spec: LeafSpec) -> int:
    return 1 if sharding is None else math.prod(sharding.counts(len(spec.shape)))


def _note(lost: _Lost, paths: list[LeafPath]) -> Consequence:
    now = f"in {lost.now} parts over" if lost.now > 1 else "whole on"
    return Consequence(
        DocsPage.SHARDINGS_OF_EDITS,
        f"{now} the devices of the mesh, and in {lost.before} parts before:"
        f" {quoted(in_listed_order(paths), _SHOWN)}; a restore that names no shardings puts more on each device, and"
        " `reshard` lays out anew",
    )
