"""Writes arrays into a clone of an OCDBT database, or into a fresh one."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.durability import sync_directory
from surgery_cli.store.filesystem.links import Linker
from surgery_cli.store.filesystem.write_failures import write_errors
from surgery_cli.store.locate.ahead import documents_of_item
from surgery_cli.store.orbax.arrays import StoredArray, Window, below
from surgery_cli.store.orbax.btree import PROCESS_PREFIX, Survey
from surgery_cli.store.orbax.btree_nodes import MANIFEST
from surgery_cli.store.orbax.contexts import new_context
from surgery_cli.store.orbax.ocdbt import OcdbtStore
from surgery_cli.store.write.array_access import open_for_writing, read_block, store_block
from surgery_cli.store.write.arrays import Batch
from surgery_cli.store.write.buffered_database import BufferedDatabase
from surgery_cli.store.write.database_versions import drop_unneeded, keep_newest, newest_version
from surgery_cli.store.write.early_reads import early_reads_for
from surgery_cli.store.write.item_plan import ItemPlan, PlannedLeaf, Way
from surgery_cli.store.write.ocdbt_references import References, database_spec, wait
from surgery_cli.store.write.raw_copies import Copies, batches, everything, read_whole
from surgery_cli.store.write.still_placed import check_database
from surgery_cli.store.write.transactions import Turns, atomic, commit
from surgery_cli.store.write.upload_buffer import BufferedPart, buffer_for

if TYPE_CHECKING:
    import numpy as np


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
        buffered: bool = False,
    ) -> None:
        """``copies``: which leaves' encoded bytes this process copies, where others copy the rest. ``buffered``: nobody
        needs to see in a bucket what is there of it before all is.
        """
        self.target = target
        self.store = store
        self.zarr = store.zarr
        self.linker = linker
        self.compact = compact
        self._copies = copies
        self.raw_bytes = 0
        self.survey: Survey | None = None
        """What was read back once everything was written."""
        self.buffer = buffer_for(target) if buffered else None
        self.early = early_reads_for(target) if buffered else None
        self.context = new_context() if self.buffer is None else self.buffer.context
        self._buffered = None
        if self.buffer is not None:
            self._buffered = BufferedDatabase(self.buffer, linker, self._opened)
        self._is_new = compact or not store.recognises(store.directory)
        self._turns = Turns()
        self._references = References(target, store, linker, self.context, is_new=self._is_new)

    def place(self, plan: ItemPlan) -> None:
        """Clone, then take by reference whatever is; a compact store copies encoded bytes instead."""
        with write_errors(self.target.name):
            if self._is_new:
                self.copy_raw([leaf for leaf in plan.leaves if leaf.taken])
                return
            are_wanted = self._references.are_wanted(plan)
            opens = bool(plan.computed) and not are_wanted
            self._clone(self._references.own_arrays(plan), opens=opens)
            if are_wanted and self._buffered is not None:
                self._buffered.wait()
                part = self._buffered.part()
                self._references.place(plan, part)
                part.send_objects()
            elif are_wanted:
                self._references.place(plan)
            self.copy_raw(plan.of(Way.RAW))

    def go_on(self, plan: ItemPlan) -> None:
        """The database is there; what it has of an array whose first blocks do not hold goes with its next ones."""
        taken = [leaf for leaf in plan.leaves if leaf.taken]
        if taken or not self._is_new:
            check_database(self.target, self.store, taken)

    def _clone(self, arrays: Iterable[StoredArray], *, opens: bool) -> None:
        """``opens``: into what is cloned values are written next."""
        files = sorted(self.store.files_of(arrays))
        for file in files:
            filesystem.make_folders((self.target / file).parent)
        pairs = [(self.store.directory / file, self.target / file) for file in files]
        survey = self.store.survey
        if self._buffered is not None:
            self._buffered.clone(pairs, survey, opens=opens)
        else:
            self.linker.carry_all(pairs)
            filesystem.write(self.target / MANIFEST, newest_version(survey.manifest))

    def copy_raw(self, leaves: Iterable[PlannedLeaf]) -> None:
        """Copy encoded bytes, in transactions of bounded size."""
        chosen = [leaf for leaf in leaves if self._copies(leaf)]
        for some in batches(chosen):
            part = None if self._buffered is None else self._buffered.part()
            database, values = self.open_database(part), read_whole(some)
            with atomic() as transaction:
                for key, value in values.items():
                    database.with_transaction(transaction).write(key, value).result()
                    self.raw_bytes += len(value)
            if part is not None and self._buffered is not None:
                self._buffered.check_copies(part, values)
                values.clear()
                part.send_objects()
        if self.buffer is not None:
            self.buffer.copied.update(leaf.name for leaf in chosen)

    @cached_property
    def shared_database(self) -> Any:
        """The target, opened once for all transactions: they are committed side by side, and none has to start anew."""
        return self.open_database()

    def open_database(self, part: BufferedPart | None = None) -> Any:
        """The target, opened for all that is written in one transaction: over two handles of it one would be none."""
        if self._buffered is not None and part is not None:
            return self._buffered.open(part)
        return self._opened(part)

    def _opened(self, part: BufferedPart | None) -> Any:
        import tensorstore as ts

        return ts.KvStore.open(self.new_database_spec(part), context=self.context).result()

    def new_database_spec(self, part: BufferedPart | None = None) -> dict[str, Any]:
        """The spec of the target; a database that is made by it gets the source's configuration."""
        spec = database_spec(self.target, part)
        if self._is_new and self.store.recognises(self.store.directory):
            config = dict(self.store.survey.manifest["config"])
            config.pop("uuid", None)
            spec["config"] = config
        return spec

    def keys_under(self, leaf: PlannedLeaf) -> set[str]:
        """What stands under a name, or would: other arrays may lie below its prefix.

        Its document is among them even where there is none: whoever makes the array need not look in the database then,
        which in a bucket is a request for each.
        """
        name, keys = leaf.name, {leaf.stored_document[0]}
        if not self._is_new and name in self.store.arrays:
            keys.update(self.store.arrays[name].keys)
        return {below(name) + key for key in keys}

    @contextmanager
    def batch(self) -> Iterator[Batch]:
        """One atomic transaction: TensorStore holds its bytes in memory until the end."""
        import tensorstore as ts

        if self.early is not None:
            self.early.begin()
        turn = self._turns.take()
        part = None if self._buffered is None else self._buffered.part()
        batch = part or _OcdbtBatch(self, ts.Transaction(atomic=True))
        try:
            yield batch
        except BaseException as error:
            batch.give_up()
            turn.fail(error)
            raise
        with write_errors(self.target.name):
            if part is None:
                assert isinstance(batch, _OcdbtBatch)
                with turn.taken(waits=batch.goes_on):
                    commit(batch.transaction)
                return
            with turn.taken():
                gone = {key for leaf in part.begun for key in self.keys_under(leaf)}
                part.put_into(self.open_database(part), gone)
            part.send_objects()

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
            database = self.open_database()
            with atomic() as transaction:
                inside = database.with_transaction(transaction)
                for leaf in elsewhere:
                    if leaf.way is Way.ENCODE and leaf.referred is None:
                        wait([inside.write(key, None) for key in self.keys_under(leaf)])
                for folder in written:
                    other = ts.KvStore.open(database_spec(folder), context=self.context).result()
                    other.experimental_copy_range_to(inside).result()

    def finish(self) -> None:
        """Drop the history that our own commits made, and the files that nothing refers to any more."""
        made = None
        if self._buffered is not None:
            with write_errors(self.target.name):
                made = self._buffered.finish()
        filesystem.forget(self.target)  # TensorStore wrote past us
        filesystem.look_ahead(self.target, around=True)
        filesystem.fetch_made(self.target, documents_of_item)
        filesystem.entries_if_any(self.target)  # all of it, where else each look is a request
        if not filesystem.exists(self.target / MANIFEST):
            return  # no array at all
        if self.buffer is None:
            known = None if self._is_new else self.store.survey
            self.survey = keep_newest(self.target, known, self.linker)
            return
        if made is None or not self.buffer.stands:
            made = Survey(self.target)
        self.survey = made
        drop_unneeded(self.target, self.survey, self.linker)


class _OcdbtBatch:
    def __init__(self, writer: OcdbtWriter, transaction: Any) -> None:
        self._writer = writer
        self.transaction = transaction
        self._database = writer.shared_database
        self._opened: dict[str, Any] = {}
        self._opening: dict[str, threading.Lock] = {}
        """By array: others are opened meanwhile."""
        self._begun: set[str] = set()
        """The names of the arrays that this batch makes; of others an earlier one has written the first blocks."""
        self._lock = threading.Lock()
        self.goes_on = False
        """True if an earlier batch has made one of its arrays."""

    def give_up(self) -> None:
        """Nothing of it is to be committed."""
        self.transaction.abort()

    def begin(self, leaf: PlannedLeaf) -> None:
        if leaf.referred is not None:  # it is there, with the chunks that are not written
            return
        inside = self._database.with_transaction(self.transaction)
        with write_errors(leaf.name):
            wait([inside.write(key, None) for key in self._writer.keys_under(leaf)])
        self._begun.add(leaf.name)

    def write(self, leaf: PlannedLeaf, window: Window, values: np.ndarray[Any, Any]) -> None:
        with self._lock:
            opening = self._opening.setdefault(leaf.name, threading.Lock())
        with opening:
            if (array := self._opened.get(leaf.name)) is None:
                array = self._opened[leaf.name] = self._array(leaf)
        store_block(array, window, values)

    def _array(self, leaf: PlannedLeaf) -> Any:
        writer = self._writer
        self.goes_on |= leaf.name not in self._begun
        with write_errors(leaf.name):
            return open_for_writing(
                writer.zarr,
                self._database / below(leaf.name),
                leaf.document,
                writer.context,
                create=leaf.name in self._begun,
                transaction=self.transaction,
            )
