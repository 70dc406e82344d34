"""What a restore that names no shardings makes of leaves that an edit has touched: where, and of how many bits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from surgery_cli.draft.expression import stored_in
from surgery_cli.draft.recipe import SOURCE, Draft
from surgery_cli.store.open.item import PytreeItem
from surgery_cli.store.write.item_plan import ItemPlan, PlannedLeaf, Way
from surgery_cli.store.write.shardings import sharding_of
from surgery_cli.tree.dtypes import WIDE
from surgery_cli.tree.listing import in_listed_order
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.sharding import NamedSharding
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage

_SHOWN: Final = 4


class _Lost(NamedTuple):
    """Into how many parts for the devices of a mesh a leaf was split, and is now."""

    before: int
    now: int


def placement_notes(draft: Draft, plans: Mapping[str, ItemPlan]) -> list[Consequence]:
    """Notes of leaves that are split over fewer devices than before, that are on others than those beside them, that
    are on record without devices, and that JAX narrows.
    """
    lost: dict[_Lost, list[LeafPath]] = {}
    apart: list[LeafPath] = []
    placeless: list[LeafPath] = []
    for plan in plans.values():
        if not isinstance(plan.item, PytreeItem):
            continue
        has_arrays = any(spec.kind is LeafKind.ARRAY for spec in plan.item.tree.values())
        for leaf in plan.of(Way.ENCODE, Way.ARRANGE, Way.GRAFT, Way.RAW):
            split = _lost(draft, plan, leaf)
            if split is not None and split.now < split.before:
                lost.setdefault(split, []).append(leaf.draft_path)
            if _is_apart(plan, leaf):
                apart.append(leaf.draft_path)
            is_first = leaf.spec.kind is LeafKind.ARRAY and not has_arrays
            if is_first and sharding_of(plan, leaf) is None:
                placeless.append(leaf.draft_path)
    notes = [_split_note(split, paths) for split, paths in lost.items()]
    if apart:
        said = "on other devices than most of the item that they come into"
        notes.append(
            _note(
                f"{said}: {_named(apart)}; JAX computes nothing with both unless a target is restored to"
            )
        )
    if placeless:
        said = "no sharding is on record for"
        notes.append(
            _note(
                f"{said} {_named(placeless)}: Orbax restores such arrays of JAX to a target alone"
            )
        )
    return [*notes, *_narrowed(draft, plans)]


def _lost(draft: Draft, plan: ItemPlan, leaf: PlannedLeaf) -> _Lost | None:
    if leaf.output.home is None or leaf.output.is_resharded:
        return None
    stored = {part.ref: part.spec for part in stored_in(leaf.output.recipe)}
    specs = [
        draft.source_tree[home.path] if home.source == SOURCE else stored.get(home)
        for home in leaf.output.homes
    ]
    before = max((_parts(one.sharding, one) for one in specs if one is not None), default=1)
    return _Lost(before, 1 if before == 1 else _parts(sharding_of(plan, leaf), leaf.spec))


def _parts(text: str | None, spec: LeafSpec) -> int:
    sharding = NamedSharding.of_text(text)
    return 1 if sharding is None else math.prod(sharding.counts(len(spec.shape)))


def _is_apart(plan: ItemPlan, leaf: PlannedLeaf) -> bool:
    """True for a leaf of another item of the step, or like one, which is on its devices among leaves on others."""
    if leaf.origin is plan.item or leaf.output.is_resharded or plan.is_new:
        return False
    usual, own = plan.step.usual_in(plan.item), sharding_of(plan, leaf)
    if usual is None or own is None or usual == own:
        return False
    there, here = NamedSharding.of_text(own), NamedSharding.of_text(usual)
    return there is None or here is None or there.mesh != here.mesh


def _narrowed(draft: Draft, plans: Mapping[str, ItemPlan]) -> Iterator[Consequence]:
    """That JAX has 32 bits at most, where the checkpoint does not show that the script has asked for more."""

    def is_wide(spec: LeafSpec) -> bool:
        return spec.kind is LeafKind.ARRAY and spec.dtype in WIDE

    wide = [path for path in draft.changed if is_wide(draft.leaves[path].spec)]
    is_of_orbax = any(isinstance(plan.item, PytreeItem) for plan in plans.values())
    if wide and is_of_orbax and not any(map(is_wide, draft.source_tree.values())):
        yield _note(f"restored in 32 bits, unless the script sets `jax_enable_x64`: {_named(wide)}")


def _split_note(lost: _Lost, paths: list[LeafPath]) -> Consequence:
    now = (
        f"in {lost.now} parts over the devices of the mesh"
        if lost.now > 1
        else "whole on each device"
    )
    return _note(
        f"{now}, and in {lost.before} parts before: {_named(paths)}; a restore that names no shardings puts more on"
        " each device, and `reshard` lays out anew"
    )


def _named(paths: list[LeafPath]) -> str:
    return quoted(in_listed_order(paths), _SHOWN)


def _note(said: str) -> Consequence:
    return Consequence(DocsPage.SHARDINGS_OF_EDITS, said)
