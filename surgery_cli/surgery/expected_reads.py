"""Which stored values a run reads, told before it does: where reads are requests, neighbours then come in one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from surgery_cli.draft.expression import Recipe, Stored, stored_in
from surgery_cli.engine.sights import judged_recipes
from surgery_cli.store import filesystem
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.orbax.arrays import ArrayStore, StoredArray
from surgery_cli.store.write.item import copied_leaves
from surgery_cli.store.write.item_plan import Way
from surgery_cli.store.write.strategy import is_per_leaf
from surgery_cli.surgery.preparation import Prepared


class Reads(NamedTuple):
    """What is read of a store: arrays, for their values, and those whose stored values are copied as they are."""

    store: ArrayStore
    names: set[str]
    encoded: set[str]


def expect_reads(prepared: Prepared) -> list[Reads]:
    """Tell the stores of all sources what will be read of them; gives what was told."""
    found = reads_expected(prepared)
    for one in found:
        one.store.expect(one.names, one.encoded)
    return found


def reads_expected(prepared: Prepared) -> list[Reads]:
    """What will be read of stores where reads are requests."""
    found: dict[int, Reads] = {}
    if all(filesystem.requests_at_once(place) == 1 for place in _places(prepared)):
        return []
    for stored in stored_in(*recipes_read(prepared)):
        if (there := array_of(prepared, stored)) is not None:
            _of(found, there[0]).names.add(there[1].name)
    for name, item in prepared.plans.items():
        in_files = item.of(Way.RAW) if is_per_leaf(item.item) else ()
        for leaf in (*copied_leaves(item, compact=prepared.compact[name]), *in_files):
            for taken in leaf.taken:
                _of(found, taken.store).encoded.add(taken.array.name)
    return [Reads(store, names - encoded, encoded) for store, names, encoded in found.values()]


def recipes_read(prepared: Prepared) -> list[Recipe]:
    """All that is computed, for the result or for a check."""
    computed = [leaf for item in prepared.plans.values() for leaf in item.computed]
    packed = [leaf for item in prepared.plans.values() for leaf in item.packed]
    judged = judged_recipes(prepared.draft.checks, computed)
    return [*(leaf.recipe for leaf in (*computed, *packed)), *judged]


def _of(found: dict[int, Reads], store: ArrayStore) -> Reads:
    return found.setdefault(id(store), Reads(store, set(), set()))


def array_of(prepared: Prepared, stored: Stored) -> tuple[ArrayStore, StoredArray] | None:
    """Where a stored leaf lies; None for what is no array in a store."""
    holder = prepared.sources[stored.ref.source]
    return holder.array_of(stored.ref.path) if isinstance(holder, Checkpoint) else None


def _places(prepared: Prepared) -> Iterable[Path]:
    return (source.place_on_disk for source in prepared.sources.values())
