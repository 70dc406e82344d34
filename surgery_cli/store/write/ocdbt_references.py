"""References in a clone of an OCDBT database: names go out and come in, no stored value is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.links import Linker
from surgery_cli.store.orbax.arrays import StoredArray, below
from surgery_cli.store.orbax.btree import DONOR_PREFIX
from surgery_cli.store.orbax.btree_nodes import MANIFEST
from surgery_cli.store.orbax.ocdbt import OcdbtStore
from surgery_cli.store.write.item_plan import ItemPlan, PlannedLeaf, Way
from surgery_cli.store.write.transactions import atomic
from surgery_cli.store.write.upload_buffer import BufferedPart


class References:
    """What the leaves of an item refer to, in the database ``target``: a clone of ``store``, or a new one."""

    def __init__(
        self, target: Path, store: OcdbtStore, linker: Linker, context: Any, *, is_new: bool
    ) -> None:
        self._target = target
        self._store = store
        self._linker = linker
        self._context = context
        self._is_new = is_new

    def are_wanted(self, plan: ItemPlan) -> bool:
        """True if the database is another one than the clone before any value is written."""
        return bool(self._gone(plan) or plan.of(Way.MOVE, Way.GRAFT) or plan.rearranged)

    def _gone(self, plan: ItemPlan) -> list[str]:
        return [] if self._is_new else names_gone(plan, self._store)

    def place(self, plan: ItemPlan, part: BufferedPart | None = None) -> None:
        """Deletes, moves, grafts and chunks in one atomic transaction: names go in and out at once, so swaps work.

        ``part`` takes what is written to a bucket.
        """
        import tensorstore as ts

        gone = self._gone(plan)
        whole, rearranged = plan.of(Way.MOVE, Way.GRAFT), plan.rearranged
        spec = database_spec(self._target, part)
        database = ts.KvStore.open(spec, context=self._context).result()
        donors = self._link_donors(plan, part)
        with atomic() as transaction:
            inside = database.with_transaction(transaction)
            wait([future for name in gone for future in deletions(inside, self._store, name)])
            futures = []
            for leaf in whole:
                # by the way, not by the directory: the source itself may be a donor as well
                grafted = leaf.way is Way.GRAFT
                source = donors[leaf.origin_store.directory] if grafted else database
                futures += _whole(source, inside, leaf)
            for leaf in rearranged:
                key, document = leaf.stored_document
                futures.append(inside.write(below(leaf.name) + key, document))
                for taken in leaf.taken:
                    own = taken.store is self._store
                    source = database if own else donors[taken.store.directory]
                    futures += _chunks(source, inside, taken.array, below(leaf.name), taken.to)
            wait(futures)

    def own_arrays(self, plan: ItemPlan) -> Iterator[StoredArray]:
        """What the new item refers to of the database that it is a clone of."""
        for leaf in plan.of(Way.KEEP, Way.MOVE):
            yield leaf.origin_array
        for leaf in plan.rearranged:
            yield from (taken.array for taken in leaf.taken if taken.store is self._store)

    def _link_donors(self, plan: ItemPlan, part: BufferedPart | None) -> dict[Path, Any]:
        """Bring the donors' data files under the target, each database in a directory of its own.

        References can only be copied between databases of one context, the donor's below the target's.
        """
        import tensorstore as ts

        wanted: dict[Path, list[StoredArray]] = {}
        stores: dict[Path, OcdbtStore] = {}
        grafted = [taken for leaf in plan.of(Way.GRAFT) for taken in leaf.taken]
        chunks = [taken for leaf in plan.rearranged for taken in leaf.taken]
        for taken in grafted + [one for one in chunks if one.store is not self._store]:
            assert isinstance(taken.store, OcdbtStore)
            stores[taken.store.directory] = taken.store
            wanted.setdefault(taken.store.directory, []).append(taken.array)
        opened = {}
        for number, (directory, arrays) in enumerate(wanted.items()):
            folder = self._donor_folder(number)
            files = sorted(stores[directory].files_of(arrays))
            for file in files:
                filesystem.make_folders((folder / file).parent)
            self._linker.carry_all((directory / file, folder / file) for file in files)
            self._linker.copy(directory / MANIFEST, folder / MANIFEST)
            spec = database_spec(folder)
            if part is not None:
                spec = part.database(f"{folder.name}/")
            opened[directory] = ts.KvStore.open(spec, context=self._context).result()
        return opened

    def _donor_folder(self, number: int) -> Path:
        """A name that no earlier graft uses and that no reader takes for a process's store."""
        while filesystem.exists(self._target / f"{DONOR_PREFIX}{number}"):
            number += 1
        folder = self._target / f"{DONOR_PREFIX}{number}"
        filesystem.make_folder(folder)
        return folder


def names_gone(plan: ItemPlan, store: OcdbtStore) -> list[str]:
    """The arrays of a store that its clone does not keep under their names."""
    # an array that is written as a whole goes with the transaction that begins to write it
    stays = {leaf.name for leaf in plan.of(Way.KEEP, Way.ENCODE) if leaf.referred is None}
    return [name for name in store.arrays if name not in stays]


def _whole(source: Any, inside: Any, leaf: PlannedLeaf) -> list[Any]:
    """Let the leaf's name refer to a whole array of ``source``; futures."""
    old, store = leaf.origin_array, leaf.origin_store
    assert isinstance(store, OcdbtStore)
    if old.name in store.shared_prefixes:
        return _chunks(source, inside, old, below(leaf.name), old.keys)
    return [(source / below(old.name)).experimental_copy_range_to(inside / below(leaf.name))]


def _chunks(
    source: Any, inside: Any, array: StoredArray, front: str, to: Sequence[str]
) -> list[Any]:
    """Let keys refer to stored values of an array of ``source``, one by one; futures."""
    import tensorstore as ts

    only = ts.KvStore.KeyRange("", "\0")  # else all keys would come that begin alike
    pairs = zip(array.keys, to, strict=True)
    return [
        (source / (below(array.name) + old)).experimental_copy_range_to(
            inside / (front + new), only
        )
        for old, new in pairs
    ]


def deletions(inside: Any, store: OcdbtStore, name: str) -> list[Any]:
    """Delete an array's keys; futures. A range would also hit arrays that lie below its prefix."""
    import tensorstore as ts

    key_range = ts.KvStore.KeyRange
    if name not in store.shared_prefixes:
        return [inside.delete_range(key_range(f"{name}/", f"{name}0"))]
    return [
        inside.delete_range(key_range(below(name) + key, f"{below(name)}{key}\0"))
        for key in store.arrays[name].keys
    ]


def database_spec(directory: Path, part: BufferedPart | None = None) -> dict[str, Any]:
    """How TensorStore is told of the database in a directory; ``part`` takes what is written to one in a bucket."""
    if part is not None:
        return part.database()
    return {"driver": "ocdbt", "base": filesystem.kvstore(directory)}


def wait(futures: Sequence[Any]) -> None:
    for future in futures:
        future.result()
