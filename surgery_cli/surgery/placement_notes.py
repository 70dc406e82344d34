"""What a restore that names no shardings makes of leaves that an edit has touched: where, and of how many bits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from surgery_cli.draft.expression import LeafRef, stored_in
from surgery_cli.draft.recipe import SOURCE, Draft, Output
from surgery_cli.store.open.item import PytreeItem
from surgery_cli.store.write.item_plan import ItemPlan, PlannedLeaf, Way
from surgery_cli.store.write.shardings import device_arrays, sharding_of, usual_left
from surgery_cli.tree.devices import are_in_one_grid, devices_of, usual_sharding
from surgery_cli.tree.dtypes import WIDE, item_bytes
from surgery_cli.tree.listing import in_listed_order
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.sharding import NamedSharding
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage

_SHOWN: Final = 4
_OTHER_GRID: Final = "another grid of the same devices"
_TOUCHED: Final = (Way.ENCODE, Way.ARRANGE, Way.GRAFT, Way.RAW)


class _Lost(NamedTuple):
    """Into how many parts for the devices of a mesh a leaf was split, and is now, and on how many devices it is."""

    before: int
    now: int
    devices: int


def placement_notes(draft: Draft, plans: Mapping[str, ItemPlan]) -> list[Consequence]:
    """Notes of leaves that are split over fewer devices than before, that are on others than those beside them, that
    are on record without devices, and that JAX narrows.
    """
    lost: dict[_Lost, list[LeafPath]] = {}
    apart: dict[str, list[LeafPath]] = {}
    placeless: list[LeafPath] = []
    parts_before = _PartsBefore(draft)
    for plan in plans.values():
        if not isinstance(plan.item, PytreeItem):
            continue
        has_arrays = any(spec.kind is LeafKind.ARRAY for spec in plan.item.tree.values())
        told = {
            leaf.draft_path: (leaf, sharding_of(plan, leaf))
            for leaf in device_arrays(plan.leaves if plan.is_new else plan.of(*_TOUCHED))
        }
        for path, (leaf, text) in told.items():
            split = _lost(parts_before.of(leaf.output), text, leaf.spec)
            if split is not None and split.now < split.before:
                lost.setdefault(split, []).append(path)
            is_first = leaf.spec.kind is LeafKind.ARRAY and not has_arrays
            if is_first and text is None:
                placeless.append(path)
        for path, how in _apart(plan, told):
            apart.setdefault(how, []).append(path)
    notes = [_split_note(split, paths) for split, paths in lost.items()]
    for how, paths in apart.items():
        said = f"on {how} than most of the item that they come into: {_named(paths)}"
        does = "may refuse to compute" if how == _OTHER_GRID else "computes nothing"
        notes.append(_note(f"{said}; JAX {does} with both unless a target is restored to"))
    if placeless:
        said = f"no sharding is on record for {_named(placeless)}"
        notes.append(_note(f"{said}: Orbax restores such arrays of JAX to a target alone"))
    return [*notes, *_narrowed(draft, plans)]


class _PartsBefore:
    """Into how many parts leaves were split, one of those that each continues: of many joined leaves found once."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._known: dict[tuple[LeafRef, int], int] = {}

    def of(self, output: Output) -> int:
        """That of the leaf that was split most; 1 where it continues none, or is laid out anew."""
        home = output.home
        if home is None or output.is_resharded:
            return 1
        if not output.others:
            return self._most(output)
        joined = home, id(output.others)  # all that is taken out of what was joined has the same
        if joined not in self._known:
            self._known[joined] = self._most(output)
        return self._known[joined]

    def _most(self, output: Output) -> int:
        homes, source = output.homes, self._draft.source_tree
        are_here = all(home.source == SOURCE for home in homes)
        stored = {} if are_here else {part.ref: part.spec for part in stored_in(output.recipe)}
        specs = (source[h.path] if h.source == SOURCE else stored.get(h) for h in homes)
        return max((_parts(one.sharding, one) for one in specs if one is not None), default=1)


def _lost(before: int, text: str | None, spec: LeafSpec) -> _Lost | None:
    devices = devices_of(text)
    if before == 1 or devices is None:
        return None
    return _Lost(before, _parts(text, spec), devices.count)


def _parts(text: str | None, spec: LeafSpec) -> int:
    sharding = NamedSharding.of_text(text)
    return 1 if sharding is None else math.prod(sharding.counts(len(spec.shape)))


def _apart(
    plan: ItemPlan, told: Mapping[LeafPath, tuple[PlannedLeaf, str | None]]
) -> Iterator[tuple[LeafPath, str]]:
    """Leaves that come into an item, and that JAX cannot use beside most of those there: with what is other.

    Those that stood apart from most where they come from, as counters do, beside devices like those here, do so still.
    """
    come = {
        path: one for path, one in told.items() if one[0].origin is not plan.item or plan.is_new
    }
    if not come:
        return
    usual = _usual(plan, come.values())
    here = devices_of(usual)
    for path, (leaf, text) in come.items():
        own = devices_of(text)
        if here is None or own is None or text is None or leaf.output.is_resharded:
            continue
        if own.are_usable_with(here):
            if own.count > 1 and not are_in_one_grid(text, usual):
                yield path, _OTHER_GRID
            continue
        origin = leaf.origin if isinstance(leaf.origin, PytreeItem) else None
        there = None if origin is None else devices_of(plan.step.usual_in(origin))
        if there != here:
            yield path, "other devices" if own.are_apart(here) else "another mesh"


def _usual(plan: ItemPlan, come: Iterable[tuple[PlannedLeaf, str | None]]) -> str | None:
    """What most of those are on that are there, or of all that come into an item that keeps none."""
    specs = (msgspec.structs.replace(leaf.spec, sharding=text) for leaf, text in come)
    return usual_left(plan) or usual_sharding(specs)


def _narrowed(draft: Draft, plans: Mapping[str, ItemPlan]) -> Iterator[Consequence]:
    """That JAX has half the bits, where the checkpoint does not show that the script has asked for more."""

    def is_wide(spec: LeafSpec) -> bool:
        return spec.kind is LeafKind.ARRAY and spec.dtype in WIDE

    is_of_orbax = any(isinstance(plan.item, PytreeItem) for plan in plans.values())
    if not is_of_orbax or any(map(is_wide, draft.source_tree.values())):
        return
    by_bits: dict[int, list[LeafPath]] = {}
    for path in draft.changed:
        if is_wide(spec := draft.leaves[path].spec):
            by_bits.setdefault(4 * item_bytes(spec.dtype), []).append(path)
    for bits, paths in sorted(by_bits.items()):
        yield _note(
            f"restored in {bits} bits, unless the script sets `jax_enable_x64`: {_named(paths)}"
        )


def _split_note(lost: _Lost, paths: list[LeafPath]) -> Consequence:
    whole = "whole on one device" if lost.devices == 1 else "whole on each device"
    now = f"in {lost.now} parts over the devices of the mesh" if lost.now > 1 else whole
    return _note(
        f"{now}, and in {lost.before} parts before: {_named(paths)}; a restore that names no shardings puts more on"
        " each device, and `reshard` lays out anew"
    )


def _named(paths: list[LeafPath]) -> str:
    return quoted(in_listed_order(paths), _SHOWN)


def _note(said: str) -> Consequence:
    return Consequence(DocsPage.SHARDINGS_OF_EDITS, said)
