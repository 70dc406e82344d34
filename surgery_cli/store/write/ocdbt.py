"""Writes arrays into a clone of an OCDBT database, or into a fresh one."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.links import Linker
from surgery_cli.store.filesystem.write_failures import write_errors
from surgery_cli.store.orbax.arrays import Window, below, new_context
from surgery_cli.store.orbax.btree import DONOR_PREFIX, MANIFEST, Survey, database_folders
from surgery_cli.store.orbax.ocdbt import OcdbtStore
from surgery_cli.store.orbax.stored_values import whole
from surgery_cli.store.write.arrays import open_for_writing, store_block
from surgery_cli.store.write.item_plan import ItemPlan, PlannedLeaf, Way

if TYPE_CHECKING:
    import numpy as np

RAW_BATCH_BYTES = 64 << 20
"""Encoded bytes that one transaction holds when they are copied without decoding."""


_COPIES: Final = 3
"""So often a value is in memory while TensorStore takes it over: as it was read, and twice more."""


def copying_bytes(leaf: PlannedLeaf) -> int:
    """Bytes in memory while the largest stored value of a leaf is copied into a database without being decoded."""
    array = leaf.origin_array
    values = array.values or leaf.origin_store.stored_values(array.name).values()
    return _COPIES * max(map(len, values), default=0)


class OcdbtWriter:
    """Arrays in a clone of an OCDBT database, or (compact) in a fresh one with the same configuration.

    A clone links the data files that are still needed, and carries one version without history.
    """

    def __init__(
        self, target: Path, store: OcdbtStore, linker: Linker, *, compact: bool = False
    ) -> None:
        self.target = target
        self.store = store
        self.zarr = store.zarr
        self.linker = linker
        self.compact = compact
        self.raw_bytes = 0
        self.survey: Survey | None = None
        """What was read back once everything was written."""
        self.context = new_context()
        self._is_new = compact or not store.recognises(store.directory)

    def place(self, plan: ItemPlan) -> None:
        """Clone, then take by reference whatever is; a compact store copies encoded bytes instead."""
        references: Sequence[PlannedLeaf] = ()
        raw = plan.of(Way.RAW)
        if self._is_new:
            raw = plan.of(Way.KEEP, Way.MOVE, Way.GRAFT, Way.RAW)
        else:
            self._clone(plan.of(Way.KEEP, Way.MOVE))
            references = plan.of(Way.MOVE, Way.GRAFT)
        # an array that is written goes with the transaction that begins to write it
        stays = {leaf.name for leaf in plan.of(Way.KEEP, Way.ENCODE)}
        with write_errors(self.target.name):
            self._refer(references, stays)
            self._copy_raw(raw)

    def _clone(self, leaves: Sequence[PlannedLeaf]) -> None:
        survey = self.store.survey
        for file in sorted(self.store.files_of(leaf.origin_array for leaf in leaves)):
            target = self.target / file
            filesystem.make_folders(target.parent)
            self.linker.carry(self.store.directory / file, target)
        self._write_manifest(survey)

    def _write_manifest(self, survey: Survey) -> None:
        """A manifest of the newest version alone, so that files of older versions need not exist."""
        import tensorstore as ts

        newest = {
            **survey.manifest,
            "versions": survey.manifest["versions"][-1:],
            "version_tree_nodes": [],
        }
        filesystem.write(self.target / MANIFEST, ts.ocdbt.undump_manifest(newest))

    def _refer(self, references: Sequence[PlannedLeaf], stays: set[str]) -> None:
        """Deletes, moves and grafts in one atomic transaction: names go in and out at once, so swaps work."""
        import tensorstore as ts

        gone = [] if self._is_new else [name for name in self.store.arrays if name not in stays]
        if not (gone or references):
            return
        database = ts.KvStore.open(database_spec(self.target), context=self.context).result()
        donors = self._link_donors([leaf for leaf in references if leaf.way is Way.GRAFT])
        with ts.Transaction(atomic=True) as transaction:
            inside = database.with_transaction(transaction)
            _wait([future for name in gone for future in _deletions(inside, self.store, name)])
            futures = []
            for leaf in references:
                # by the way, not by the directory: the source itself may be a donor as well
                grafted = leaf.way is Way.GRAFT
                source = donors[leaf.origin_store.directory] if grafted else database
                futures += self._references(source, inside, leaf)
            _wait(futures)

    def _copy_raw(self, leaves: Sequence[PlannedLeaf]) -> None:
        """Copy encoded bytes, in transactions of bounded size."""
        import tensorstore as ts

        if not leaves:
            return
        database = ts.KvStore.open(self.new_database_spec(), context=self.context).result()
        transaction, held = ts.Transaction(atomic=True), 0
        for leaf in leaves:
            for key, value in leaf.origin_store.stored_values(leaf.origin_array.name).items():
                if held > RAW_BATCH_BYTES:
                    transaction.commit_async().result()
                    transaction, held = ts.Transaction(atomic=True), 0
                database.with_transaction(transaction).write(
                    below(leaf.name) + key, whole(value)
                ).result()
                held += len(value)
                self.raw_bytes += len(value)
        transaction.commit_async().result()

    def new_database_spec(self) -> dict[str, Any]:
        """The spec of the target; a database that is made by it gets the source's configuration."""
        spec = database_spec(self.target)
        if self._is_new and self.store.recognises(self.store.directory):
            config = dict(self.store.survey.manifest["config"])
            config.pop("uuid", None)
            spec["config"] = config
        return spec

    def _references(self, source: Any, inside: Any, leaf: PlannedLeaf) -> list[Any]:
        """Let the leaf's name refer to stored values of ``source``; futures."""
        old = leaf.origin_array
        store = leaf.origin_store
        assert isinstance(store, OcdbtStore)
        if old.name not in store.shared_prefixes:
            return [
                (source / below(old.name)).experimental_copy_range_to(inside / below(leaf.name))
            ]
        return [
            (source / from_).experimental_copy_range_to(inside / to)
            for from_, to in ((below(old.name) + key, below(leaf.name) + key) for key in old.keys)
        ]

    def _link_donors(self, grafts: list[PlannedLeaf]) -> dict[Path, Any]:
        """Bring the donors' data files under the target, each database in a directory of its own.

        References can only be copied between databases of one context, the donor's below the target's.
        """
        import tensorstore as ts

        wanted: dict[Path, list[PlannedLeaf]] = {}
        for leaf in grafts:
            wanted.setdefault(leaf.origin_store.directory, []).append(leaf)
        opened = {}
        for number, (directory, leaves) in enumerate(wanted.items()):
            folder = self._donor_folder(number)
            store = leaves[0].origin_store
            assert isinstance(store, OcdbtStore)
            for file in sorted(store.files_of(leaf.origin_array for leaf in leaves)):
                filesystem.make_folders((folder / file).parent)
                self.linker.carry(directory / file, folder / file)
            self.linker.copy(directory / MANIFEST, folder / MANIFEST)
            opened[directory] = ts.KvStore.open(
                database_spec(folder), context=self.context
            ).result()
        return opened

    def _donor_folder(self, number: int) -> Path:
        """A name that no earlier graft uses and that no reader takes for a process's store."""
        while filesystem.exists(self.target / f"{DONOR_PREFIX}{number}"):
            number += 1
        folder = self.target / f"{DONOR_PREFIX}{number}"
        filesystem.make_folder(folder)
        return folder

    def clear(self, name: str, transaction: Any) -> None:
        """Delete in a transaction what the clone has under a name; other arrays may lie below its prefix."""
        import tensorstore as ts

        if self._is_new or name not in self.store.arrays:
            return
        with write_errors(name):
            database = ts.KvStore.open(database_spec(self.target), context=self.context).result()
            inside = database.with_transaction(transaction)
            _wait([inside.write(below(name) + key, None) for key in self.store.arrays[name].keys])

    @contextmanager
    def batch(self) -> Iterator[_OcdbtBatch]:
        """One atomic transaction: TensorStore holds its bytes in memory until the end."""
        import tensorstore as ts

        transaction = ts.Transaction(atomic=True)
        try:
            yield _OcdbtBatch(self, transaction)
        except BaseException:
            transaction.abort()
            raise
        with write_errors(self.target.name):
            transaction.commit_async().result()

    def finish(self) -> None:
        """Drop the history that our own commits made, and the files that nothing refers to any more."""
        if not filesystem.exists(self.target / MANIFEST):
            return  # no array at all
        known = None if self._is_new else self.store.survey
        survey = self.survey = Survey(self.target, known)
        self._write_manifest(survey)
        needed = set(survey.files)
        for file in survey.all_files():
            if file not in needed:
                filesystem.delete(self.target / file)
        for folder in database_folders(self.target):
            filesystem.delete(folder / MANIFEST)  # only the root's manifest is read
            _remove_empty(folder)


class _OcdbtBatch:
    def __init__(self, writer: OcdbtWriter, transaction: Any) -> None:
        self._writer = writer
        self._transaction = transaction
        self._opened: dict[str, Any] = {}
        self._begun: set[str] = set()
        """The names of the arrays that this batch makes; of others an earlier one has written the first blocks."""
        self._lock = threading.Lock()

    def begin(self, leaf: PlannedLeaf) -> None:
        self._writer.clear(leaf.name, self._transaction)
        self._begun.add(leaf.name)

    def write(self, leaf: PlannedLeaf, window: Window, values: np.ndarray[Any, Any]) -> None:
        with self._lock:
            array = self._opened.get(leaf.name)
            if array is None:
                array = self._opened[leaf.name] = self._array(leaf)
        store_block(array, window, values)

    def _array(self, leaf: PlannedLeaf) -> Any:
        writer = self._writer
        kvstore = {**writer.new_database_spec(), "path": below(leaf.name)}
        with write_errors(leaf.name):
            return open_for_writing(
                writer.zarr,
                kvstore,
                leaf.document,
                writer.context,
                create=leaf.name in self._begun,
                transaction=self._transaction,
            )


def _deletions(inside: Any, store: OcdbtStore, name: str) -> list[Any]:
    """Delete an array's keys; futures. A range would also hit arrays that lie below its prefix."""
    import tensorstore as ts

    key_range = ts.KvStore.KeyRange
    if name not in store.shared_prefixes:
        return [inside.delete_range(key_range(f"{name}/", f"{name}0"))]
    return [
        inside.delete_range(key_range(below(name) + key, f"{below(name)}{key}\0"))
        for key in store.arrays[name].keys
    ]


def database_spec(directory: Path) -> dict[str, Any]:
    return {"driver": "ocdbt", "base": filesystem.kvstore(directory)}


def _remove_empty(folder: Path) -> None:
    for prefix, _ in reversed(list(filesystem.below(folder))):
        with suppress(OSError):  # not empty
            filesystem.delete_folder(folder / prefix)


def _wait(futures: list[Any]) -> None:
    for future in futures:
        future.result()
