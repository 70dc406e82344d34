"""Copy-on-write or compact: what each would cost, from metadata, and the choice between them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec

from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.boundary import Boundary
from surgery_cli.store.open.item import Item, PytreeItem
from surgery_cli.store.orbax.arrays import ArrayStore, StoredArray, below
from surgery_cli.store.orbax.extents import Extent
from surgery_cli.store.orbax.ocdbt import OcdbtStore
from surgery_cli.store.orbax.per_leaf import PerLeafStore
from surgery_cli.store.write.chunk_references import Taken
from surgery_cli.store.write.item_plan import ItemPlan, Way
from surgery_cli.store.write.ocdbt_references import names_gone

WORTHWHILE_DEAD_BYTES = 1 << 20
"""Fewer dead bytes are never worth rewriting live ones."""


class Costs(msgspec.Struct, frozen=True):
    """Bytes that taking leaves by reference shares: of all stores, and of the item's own those that something needs.

    ``outside_bytes``: of the linked ones, those of files outside of the checkpoints, which are copied.
    ``donor_dead_bytes``: what the files of donors have beside the leaves that are taken from them. It does not weigh in
    the choice: a graft would never be free.
    """

    linked_bytes: int
    own_bytes: int
    live_bytes: int
    donor_dead_bytes: int = 0
    outside_bytes: int = 0
    shared_bytes: Mapping[Path, int] = {}
    """Of the linked ones, by the directory of the store, those that are not outside."""

    @property
    def dead_bytes(self) -> int:
        """Bytes of the item's own files that nothing in the new item would refer to."""
        return max(self.own_bytes - self.live_bytes, 0)


def costs_of_references(plan: ItemPlan, boundary: Boundary) -> Costs:
    """What the item's leaves that are taken by reference cost in a clone."""
    by_store: dict[int, list[Taken]] = {}
    for leaf in plan.by_reference:
        for one in leaf.taken:
            by_store.setdefault(id(one.store), []).append(one)
    own_store = plan.item.store if isinstance(plan.item, PytreeItem) else None
    linked = own = live = dead = outside = 0
    shared: dict[Path, int] = {}
    for taken in by_store.values():
        store, before = taken[0].store, linked - outside
        if not isinstance(store, OcdbtStore):
            # each leaf has files of its own, copies of one as well
            linked += sum(one.array.stored_bytes for one in taken)
            outside += _bytes_outside(store, [one.array for one in taken], boundary)
            shared[store.directory] = linked - outside - before
            continue
        arrays = list({(one.array.name, one.array.keys): one.array for one in taken}.values())
        # of a donor's tree nothing is kept: what is taken from it is entered into the tree of the new item
        nodes = nodes_left(plan, store) if store is own_store else []
        paths = [store.directory / file for file in store.files_of(arrays, nodes)]
        files = sum(filesystem.size(path) for path in paths)
        outside += sum(filesystem.size(path) for path in paths if not boundary.holds(path))
        linked += files
        shared[store.directory] = linked - outside - before
        needed = _needed(arrays)
        if store is own_store:
            own, live = files, _bytes(needed.union(nodes))
        else:
            dead += files - _bytes(needed)
    return Costs(linked, own, live, dead, outside, shared)


def nodes_written(plan: ItemPlan, store: OcdbtStore, *, compact: bool) -> int:
    """About how many bytes of nodes a database gets: the changed ones, and the more the more leaves there are."""
    left = [] if compact else nodes_left(plan, store)
    leaves = sum(leaf.way is not Way.NONE for leaf in plan.leaves)
    size = _bytes(store.survey.nodes) - _bytes(left)
    return size * leaves // max(len(store.arrays), 1)


def _changed(plan: ItemPlan, store: OcdbtStore) -> list[str]:
    """The names below which a clone of the store has other keys, or refers to other values, than the store."""
    whole = [leaf.name for leaf in plan.leaves if leaf.way not in (Way.KEEP, Way.NONE)]
    return names_gone(plan, store) + whole


def nodes_left(plan: ItemPlan, store: OcdbtStore) -> list[Extent]:
    """The nodes of the item's tree that stay, as nothing below them changes: others are written anew, whole.

    Every change makes a new root.
    """
    changed = _changed(plan, store)
    if not changed:
        return store.survey.nodes
    touched = _touched(store, changed)
    return [node for _, node in store.leaf_nodes if node not in touched]


def are_moves_overwritten(plan: ItemPlan, store: OcdbtStore) -> bool:
    """True if all nodes that are written anew where leaves move, or go, are so once more where values are written."""
    computed = {leaf.name for leaf in plan.computed}
    moved = [name for name in _changed(plan, store) if name not in computed]
    return bool(computed) and _touched(store, moved) <= _touched(store, computed)


def _touched(store: OcdbtStore, names: Iterable[str]) -> set[Extent]:
    """The nodes that change with what lies below these names: a key between two leaves goes to the one before it."""
    leaves = store.leaf_nodes
    firsts = [first for first, _ in leaves]
    touched = set(store.survey.nodes[:1])
    for name in names:
        front = below(name).encode(errors="surrogateescape")
        start = max(bisect_right(firsts, front) - 1, 0)
        stop = bisect_right(firsts, front[:-1] + b"0") if front else len(firsts)
        touched.update(node for _, node in leaves[start : max(stop, start + 1)])
    return touched


def _bytes_outside(store: ArrayStore, arrays: Iterable[StoredArray], boundary: Boundary) -> int:
    """Bytes of the files of arrays, one for each key, that links lead to outside of the checkpoints."""
    if not boundary.outside(store.directory, store.data_files, store.symbolic_links):
        return 0
    files = [below(array.name) + key for array in arrays for key in array.keys]
    found = boundary.outside(store.directory, files, files)
    return sum(filesystem.size(store.directory / file) for file in found)


def _needed(arrays: Iterable[StoredArray]) -> set[Extent]:
    """The parts of data files that these arrays refer to."""
    values = (value for array in arrays for value in array.values)
    return {value for value in values if isinstance(value, Extent)}


def _bytes(extents: Iterable[Extent]) -> int:
    return sum(extent.length for extent in extents)


KEEPING: Final = "unchanged leaves keep their own files"
REFERRING: Final = "unchanged leaves refer to the source's own bytes"


def reason_at(reason: str, source: Path, target: Path | None) -> str:
    """The reason of ``is_compact`` as it is where source and result lie: with a bucket, they share no bytes."""
    places = [place for place in (source, target) if place is not None]
    if reason not in (KEEPING, REFERRING) or not any(isinstance(p, BucketPath) for p in places):
        return reason
    schemes = {place.scheme if isinstance(place, BucketPath) else "" for place in places}
    by = " by the service" if len(schemes) == 1 and target is not None else ""
    return f"unchanged files are copied{by}: the result is independent of the source"


def is_compact(
    plan: ItemPlan, costs: Costs, wish: Literal["auto", "always", "never"]
) -> tuple[bool, str]:
    """Whether the item is written fresh, and why, as a sentence; ``costs`` are those of its references."""
    if not isinstance(plan.item, PytreeItem) or plan.item.store is None:
        return False, ""
    if not isinstance(plan.item.store, OcdbtStore):
        return False, KEEPING
    if wish != "auto":
        return wish == "always", f"`--compact {wish}`"
    if costs.dead_bytes > costs.own_bytes / 4 and costs.dead_bytes > WORTHWHILE_DEAD_BYTES:
        share = round(100 * costs.dead_bytes / costs.own_bytes)
        return True, f"{share} % of the linked bytes would be dead"
    return False, REFERRING


def is_per_leaf(item: Item) -> bool:
    """True if arrays get a directory each: those of an item without any, if its metadata say so of those to come."""
    if not isinstance(item, PytreeItem):
        return False
    if item.store is None:
        return (item.sidecars.metadata or {}).get("use_ocdbt") is False
    return isinstance(item.store, PerLeafStore)
