"""Which stored values a run reads, told before it does: where reads are requests, neighbours then come in one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from surgery_cli.draft.expression import Recipe, Stored, stored_in
from surgery_cli.engine.checks import judged_recipes
from surgery_cli.store import filesystem
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.orbax.arrays import ArrayStore, StoredArray
from surgery_cli.store.write.item import copied_leaves
from surgery_cli.surgery.preparation import Prepared


def recipes_read(prepared: Prepared) -> list[Recipe]:
    """What values are made of that are written, packed into a file, or judged."""
    made = [leaf.output.recipe for item in prepared.plans.values() for leaf in item.computed]
    return made + judged_recipes(prepared.draft.checks, made)


def expect_reads(prepared: Prepared) -> None:
    """Tell the stores of all sources what will be read of them."""
    if all(filesystem.requests_at_once(place) == 1 for place in _places(prepared)):
        return
    read: dict[int, tuple[ArrayStore, set[str], set[str]]] = {}
    for stored in stored_in(*recipes_read(prepared)):
        if (found := array_of(prepared, stored)) is not None:
            store, array = found
            read.setdefault(id(store), (store, set(), set()))[1].add(array.name)
    for name, item in prepared.plans.items():
        for leaf in copied_leaves(item, compact=prepared.compact[name]):
            for taken in leaf.taken:
                one = read.setdefault(id(taken.store), (taken.store, set(), set()))
                one[2].add(taken.array.name)
    for store, names, encoded in read.values():
        store.expect(names - encoded, encoded)


def array_of(prepared: Prepared, stored: Stored) -> tuple[ArrayStore, StoredArray] | None:
    """Where a stored leaf lies; None for what is no array in a store."""
    holder = prepared.sources[stored.ref.source]
    return holder.array_of(stored.ref.path) if isinstance(holder, Checkpoint) else None


def _places(prepared: Prepared) -> Iterable[Path]:
    return (source.place_on_disk for source in prepared.sources.values())
