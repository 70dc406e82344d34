"""Writes arrays into a clone of an OCDBT database, or into a fresh one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.durability import sync_directory
from surgery_cli.store.filesystem.links import Linker
from surgery_cli.store.filesystem.write_failures import write_errors
from surgery_cli.store.orbax.arrays import StoredArray, Window, below
from surgery_cli.store.orbax.btree import MANIFEST, PROCESS_PREFIX, Survey, database_folders
from surgery_cli.store.orbax.contexts import new_context
from surgery_cli.store.orbax.ocdbt import OcdbtStore
from surgery_cli.store.orbax.stored_values import StoredValue, whole
from surgery_cli.store.write.arrays import open_for_writing, read_block, store_block
from surgery_cli.store.write.item_plan import ItemPlan, PlannedLeaf, Way
from surgery_cli.store.write.ocdbt_references import (
    References,
    database_spec,
    wait,
)

if TYPE_CHECKING:
    import numpy as np

RAW_BATCH_BYTES = 64 << 20
"""Encoded bytes that one transaction holds when they are copied without decoding."""


Copies: TypeAlias = Callable[[PlannedLeaf], bool]


def everything(_: PlannedLeaf) -> bool:
    """What one process copies that has no others beside it."""
    return True


_COPIES: Final = 3
"""So often a value is in memory while TensorStore takes it over: as it was read, and twice more."""


def copying_bytes(leaf: PlannedLeaf) -> int:
    """Bytes in memory while the largest stored value of a leaf is copied into a database without being decoded."""
    values = (len(value) for _, value in _encoded([leaf]))
    return _COPIES * max(values, default=0)


def _encoded(leaves: Iterable[PlannedLeaf]) -> Iterator[tuple[str, StoredValue]]:
    """What is copied without being decoded, by its new key; the document of what is rearranged is new."""
    for leaf in leaves:
        if leaf.referred is not None:
            key, document = leaf.stored_document
            yield below(leaf.name) + key, document
        for taken in leaf.taken:
            values = taken.store.stored_values(taken.array.name)
            for old, new in zip(taken.array.keys, taken.to, strict=True):
                yield below(leaf.name) + new, values[old]


def folder_of_process(item: Path, number: int) -> Path:
    """Where one of several processes has its own database in an item, as Orbax's processes have."""
    return item / f"{PROCESS_PREFIX}{number}"


class OcdbtWriter:
    """Arrays in a clone of an OCDBT database, or (compact) in a fresh one with the same configuration.

    A clone links the data files that are still needed, and carries one version without history.
    """

    def __init__(
        self,
        target: Path,
        store: OcdbtStore,
        linker: Linker,
        *,
        compact: bool = False,
        copies: Copies = everything,
    ) -> None:
        """``copies``: which leaves' encoded bytes this process copies, where others copy the rest."""
        self.target = target
        self.store = store
        self.zarr = store.zarr
        self.linker = linker
        self.compact = compact
        self._copies = copies
        self.raw_bytes = 0
        self.survey: Survey | None = None
        """What was read back once everything was written."""
        self.context = new_context()
        self._is_new = compact or not store.recognises(store.directory)
        self._references = References(target, store, linker, self.context, is_new=self._is_new)

    def place(self, plan: ItemPlan) -> None:
        """Clone, then take by reference whatever is; a compact store copies encoded bytes instead."""
        with write_errors(self.target.name):
            if self._is_new:
                self.copy_raw([leaf for leaf in plan.leaves if leaf.taken])
                return
            self._clone(self._references.own_arrays(plan))
            self._references.place(plan)
            self.copy_raw(plan.of(Way.RAW))

    def go_on(self) -> None:
        """The database is there; what it has of an array whose first blocks do not hold goes with its next ones."""

    def _clone(self, arrays: Iterable[StoredArray]) -> None:
        survey = self.store.survey
        files = sorted(self.store.files_of(arrays))
        for file in files:
            filesystem.make_folders((self.target / file).parent)
        self.linker.carry_all((self.store.directory / file, self.target / file) for file in files)
        filesystem.write(self.target / MANIFEST, _newest(survey))

    def copy_raw(self, leaves: Iterable[PlannedLeaf]) -> None:
        """Copy encoded bytes, in transactions of bounded size."""
        import tensorstore as ts

        leaves = [leaf for leaf in leaves if self._copies(leaf)]
        if not leaves:
            return
        database = ts.KvStore.open(self.new_database_spec(), context=self.context).result()
        transaction, held = ts.Transaction(atomic=True), 0
        for key, value in _encoded(leaves):
            if held > RAW_BATCH_BYTES:
                transaction.commit_async().result()
                transaction, held = ts.Transaction(atomic=True), 0
            database.with_transaction(transaction).write(key, whole(value)).result()
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

    def clear(self, leaf: PlannedLeaf, transaction: Any) -> None:
        """Delete in a transaction what stands under a name; other arrays may lie below its prefix.

        Its document is deleted even where there is none: whoever makes the array need not look in the database then,
        which in a bucket is a request for each.
        """
        import tensorstore as ts

        name, keys = leaf.name, {leaf.stored_document[0]}
        if not self._is_new and name in self.store.arrays:
            keys.update(self.store.arrays[name].keys)
        with write_errors(name):
            # as it is opened for the arrays: a transaction over two handles of a database is none
            database = ts.KvStore.open(self.new_database_spec(), context=self.context).result()
            inside = database.with_transaction(transaction)
            wait([inside.write(below(name) + key, None) for key in keys])

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

    def settle(self, names: Collection[str]) -> None:
        """TensorStore sees to files and their folders, and not to a folder that it has made."""
        if not isinstance(self.target, BucketPath):
            sync_directory(self.target)

    def read_back(self, leaf: PlannedLeaf, window: Window) -> np.ndarray[Any, Any] | None:
        kvstore = {**database_spec(self.target), "path": below(leaf.name)}
        return read_block(self.zarr, kvstore, leaf, self.context, window)

    def merge(self, numbers: Iterable[int], elsewhere: Sequence[PlannedLeaf]) -> None:
        """Refer to what other processes have written in databases of their own, in one atomic transaction."""
        import tensorstore as ts

        folders = [folder_of_process(self.target, number) for number in numbers]
        for folder in folders:
            filesystem.forget(folder)
        written = [folder for folder in folders if filesystem.exists(folder / MANIFEST)]
        with write_errors(self.target.name):
            database = ts.KvStore.open(self.new_database_spec(), context=self.context).result()
            with ts.Transaction(atomic=True) as transaction:
                for leaf in elsewhere:
                    if leaf.way is Way.ENCODE and leaf.referred is None:
                        self.clear(leaf, transaction)
                inside = database.with_transaction(transaction)
                for folder in written:
                    other = ts.KvStore.open(database_spec(folder), context=self.context).result()
                    other.experimental_copy_range_to(inside).result()

    def finish(self) -> None:
        """Drop the history that our own commits made, and the files that nothing refers to any more."""
        filesystem.forget(self.target)  # TensorStore wrote past us
        if not filesystem.exists(self.target / MANIFEST):
            return  # no array at all
        known = None if self._is_new else self.store.survey
        survey = self.survey = Survey(self.target, known)
        filesystem.replace_whole(self.target / MANIFEST, _newest(survey))
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
        if leaf.referred is not None:  # it is there, with the chunks that are not written
            return
        self._writer.clear(leaf, self._transaction)
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


def _newest(survey: Survey) -> bytes:
    """A manifest of the newest version alone, so that files of older versions need not exist."""
    import tensorstore as ts

    newest = {
        **survey.manifest,
        "versions": survey.manifest["versions"][-1:],
        "version_tree_nodes": [],
    }
    found: bytes = ts.ocdbt.undump_manifest(newest)
    return found


def _remove_empty(folder: Path) -> None:
    for prefix, _ in reversed(list(filesystem.below(folder))):
        with suppress(OSError):  # not empty
            filesystem.delete_folder(folder / prefix)
