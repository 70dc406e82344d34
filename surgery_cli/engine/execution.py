"""The run: every leaf that needs values is read, computed, digested and written, within a budget of bytes."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from surgery_cli.draft.check import Check
from surgery_cli.draft.expression import Recipe, is_repeatable, stored_in
from surgery_cli.draft.kernel import Kit, Window
from surgery_cli.engine.bands import loaded
from surgery_cli.engine.checked_source import CheckedSource, Recorded
from surgery_cli.engine.checks import Checks, Watched, refuse_breaches
from surgery_cli.engine.decoding import held_bytes, is_read_once
from surgery_cli.engine.digests import Digester, block_digest, checksum, digest_beside
from surgery_cli.engine.evaluation import Evaluation
from surgery_cli.engine.executed import Executed
from surgery_cli.engine.forecast import pending_bytes, reading_bytes
from surgery_cli.engine.grid import block_shape, relative, start_of, windows
from surgery_cli.engine.guard import FiniteGuard
from surgery_cli.engine.held import Band
from surgery_cli.engine.judging import Judging
from surgery_cli.engine.kept_chunks import KeptChunks
from surgery_cli.engine.leaf_in_work import LeafInWork, Transaction, Written
from surgery_cli.engine.measurements import Measurements
from surgery_cli.engine.progress import Meter
from surgery_cli.engine.reading import CountedSource, Readable
from surgery_cli.engine.stream import COMMITS, Stream
from surgery_cli.store.write.item_plan import PlannedLeaf
from surgery_cli.store.write.item_writer import ItemWriter
from surgery_cli.store.write.journal import Journal
from surgery_cli.store.write.sidecars import write_shape
from surgery_cli.tree.paths import LeafPath


class Execution:
    """Writes the values of a draft into the items under construction, and judges what must hold of them."""

    def __init__(
        self,
        sources: Mapping[str, Readable],
        kit: Kit,
        *,
        memory_bytes: int,
        meter: Meter,
        allow_non_finite: bool = False,
        recorded: Mapping[str, Recorded] | None = None,
        checks: Sequence[Check] = (),
        judging_bytes: int | None = None,
        is_alone: bool = False,
        journal: Journal | None = None,
    ) -> None:
        """Nothing is read yet; ``recorded``: the digests on record that what is read must agree with, by source.

        ``checks``: what must hold; ``checks.findings`` say what was found. ``judging_bytes``: see ``Checks``.
        ``is_alone``: see ``Stream``.
        ``journal``: what an earlier run has written, and where to write down what this one does.
        """
        known = recorded or {}
        self._counted = {name: CountedSource(source) for name, source in sources.items()}
        self._sources = {
            name: CheckedSource(source, known.get(name)) for name, source in self._counted.items()
        }
        self._kit = kit
        self._measurements = Measurements()
        self.checks = Checks(
            checks, self._sources, kit, self._measurements, memory_bytes, judging_bytes
        )
        self._meter = meter
        self._guard = None if allow_non_finite else FiniteGuard(self._counted)
        commits = COMMITS if journal is None else 1  # what goes into a journal goes there in order
        self._stream = Stream(memory_bytes, is_alone=is_alone, commits=commits)
        self._lock = threading.Lock()
        self._journal = journal
        self._kept = KeptChunks(sources)
        self._taken_up: dict[LeafPath, LeafInWork | None] = {}
        """What an earlier run has begun; None for leaves that are done."""
        self.executed = Executed()

    def run(self, writers: Sequence[ItemWriter]) -> Executed:
        """Write everything that is not taken by reference; what must hold of the rest is judged first.

        Raises:
            ValueRefusal: the values show that an edit must not be done, or it made a value that is not finite.
            CheckpointError: a source cannot be read.
            WriteError: the new checkpoint cannot be written.
        """
        with self._stream.working():
            self._judge(self.checks.left(writers))
            self._judge(self.checks.left_if_refused())
            refuse_breaches(self.checks.findings())
            self._write(writers)
        return self.executed

    def judge(self, writers: Sequence[ItemWriter] = ()) -> None:
        """Look at what nobody writes as it stands; nothing is refused."""
        with self._stream.working():
            self._judge(self.checks.left(writers))

    def _write(self, writers: Sequence[ItemWriter]) -> None:
        for writer in writers:
            for leaf in writer.plan.packed:  # computed when its turn to be written comes
                writer.keep_value(leaf, partial(self._whole_value, leaf))
            self._take_up(writer)
            for leaf in self._kept.one_by_one(writer.order):
                self._write_leaf(writer, leaf)
            self._stream.finish()

    @property
    def read_bytes(self) -> int:
        """Bytes of values that were read so far, measurements included."""
        return sum(source.read_bytes for source in self._counted.values())

    def check_sources(self) -> int:
        """Hold every leaf that was read against its digest on record; how many have one, and agree.

        Raises:
            CheckpointError: one does not.
        """
        limit = self._stream.budget.limit
        return sum(source.complete(limit) for source in self._sources.values())

    def _judge(self, left: Sequence[Watched]) -> None:
        """Read what nobody writes as it stands where something must hold of it."""
        given = self._sources, self._kit, self._measurements, self._stream, self._meter, self._lock
        Judging(*given).judge(left)

    def _evaluation(self, recipe: Recipe, block: tuple[int, ...], spare: int = 0) -> Evaluation:
        limit, known = self._stream.budget.limit, self._measurements
        return Evaluation(recipe, self._sources, self._kit, block, known, limit, spare)

    def _whole_value(self, leaf: PlannedLeaf) -> np.ndarray[Any, Any]:
        shape = leaf.spec.shape
        evaluation = self._evaluation(leaf.recipe, shape)
        window = tuple(slice(0, n) for n in shape)
        watched = self.checks.of(leaf.recipe)
        values = evaluation.block(window)
        self._look(leaf, window, values, watched)
        grid = block_shape(leaf.spec, leaf.spec.write_shape)
        digester = Digester(leaf.spec, grid)
        for part in windows(shape, grid):
            digester.add(part, values[part])
        with self._lock:
            self.executed.written_bytes += values.nbytes
            self.executed.digests[leaf.draft_path] = digester.result()
        return values

    def _leaf(self, planned: PlannedLeaf) -> LeafInWork:
        recipe, is_whole = planned.recipe, planned.is_read_whole
        block = block_shape(planned.spec, write_shape(planned), *(() if is_whole else (1,)))
        watched = self.checks.of(recipe) if is_whole else None
        # what a block holds once it is made is free until then
        spare = 0 if self._stream.is_alone else pending_bytes(planned, block)
        evaluation = self._evaluation(recipe, block, spare)
        return LeafInWork(planned, evaluation, self._kit.tile_elements, watched)

    def _take_up(self, writer: ItemWriter) -> None:
        """Read back what an earlier run has written; a block that is not what was recorded is made anew.

        What a function of the user's makes is made anew in any case: what it gives may depend on earlier calls.
        """
        if self._journal is None:
            return
        for planned in writer.plan.computed:
            recorded = self._journal.blocks_of(planned.draft_path)
            if not recorded or not is_repeatable(planned.recipe):
                continue
            for stored in stored_in(planned.recipe):
                self._sources[stored.ref.source].expect(stored.ref.path)
            leaf = self._taken_up[planned.draft_path] = self._leaf(planned)
            held = reading_bytes(planned.spec, leaf.evaluation.block_shape)
            if leaf.watched is not None:
                held += leaf.working_bytes
            for window in leaf.windows:
                digest = recorded.get(start_of(window))
                if digest is not None:
                    self._stream.start(held, self._take_up_block, writer, leaf, window, digest)
        self._stream.finish()

    def _take_up_block(
        self, writer: ItemWriter, leaf: LeafInWork, window: Window, digest: bytes
    ) -> None:
        values = writer.read_back(leaf.planned, window)
        if values is None or block_digest(values) != digest:
            return
        self._look(leaf.planned, window, values, leaf.watched)
        is_last = self._end_block(leaf, window, digest)
        with self._lock:
            leaf.standing.add(start_of(window))
            self.executed.taken_up_bytes += values.nbytes
            if is_last:
                self._taken_up[leaf.planned.draft_path] = None

    def _write_leaf(self, writer: ItemWriter, planned: PlannedLeaf) -> None:
        """Submit every block of a leaf that does not stand, as the budget lets it."""
        if planned.draft_path in self._taken_up and self._taken_up[planned.draft_path] is None:
            return
        leaf = self._taken_up.get(planned.draft_path) or self._leaf(planned)
        self._kept.begin(leaf)
        self._measure(leaf)
        if is_read_once(planned, self._stream.budget.limit):
            leaf.kept_bytes = held_bytes(planned)
            self._stream.hold(leaf.kept_bytes)
            leaf.evaluation.stored.keep_all()
        has_begun, tiles = bool(leaf.standing), self._kit.tile_elements
        for band, blocks in loaded(planned, leaf.evaluation, leaf.missing, self._stream, tiles):
            for window in blocks:
                self._stream.fill(
                    leaf.working_bytes if band is None else band.computing_bytes,
                    leaf.pending_bytes,
                    partial(self._transaction, writer),
                    self._write_block,
                    leaf,
                    window,
                    band,
                    begin=None if has_begun else lambda batch: batch.begin(planned),
                )
                has_begun = True

    @contextmanager
    def _transaction(self, writer: ItemWriter) -> Iterator[Transaction]:
        """A transaction, and what is written down of it once it is committed."""
        with writer.batch() as batch:
            transaction = Transaction(batch, is_read_back=writer.early is not None)
            yield transaction
        transaction.read_back(writer)
        if self._journal is not None:
            writer.settle(block.leaf for block in transaction.blocks)
            self._journal.written(transaction.done)

    def _measure(self, leaf: LeafInWork) -> None:
        """The passes before a leaf of several blocks is written; others are measured when a block first needs it."""
        for part in leaf.evaluation.unmeasured:
            taking = self._measurements.assign(part, leaf.evaluation)
            if taking.owner is not leaf.evaluation or len(taking.blocks) == 1:
                continue
            taking.is_begun = True
            for blocks in taking.passes():
                shares = [
                    self._stream.start(leaf.working_bytes, leaf.share, taking, block)
                    for block in blocks
                ]
                for share in shares:
                    share.result()

    def _write_block(
        self, into: Transaction, leaf: LeafInWork, window: Window, band: Band | None
    ) -> None:
        values = leaf.block(window, band, self._stream.budget)
        self._look(leaf.planned, window, values, leaf.watched)
        planned, written = leaf.planned, 0
        coming = digest_beside(values)  # which are encoded meanwhile
        for part in leaf.parts_to_write(window):
            chunk = values if part == window else values[relative(part, window)]
            into.write(planned, part, chunk)
            written += chunk.nbytes
        known = checksum(values) if into.is_read_back else b""
        digest = coming.result()
        is_last = self._end_block(leaf, window, digest)
        with self._lock:
            self.executed.written_bytes += written
            into.blocks.append(Written(planned, window, digest, known))
        if is_last and leaf.kept_bytes:
            leaf.evaluation.stored.let_go()
            self._stream.budget.give(leaf.kept_bytes)

    def _end_block(self, leaf: LeafInWork, window: Window, digest: bytes) -> bool:
        """A block is written, or stands already; True if it was the last of its leaf."""
        leaf.digester.put(window, digest)
        with self._lock:
            leaf.left -= 1
            leaf.tell(self.executed, window, digest)
            is_last = not leaf.left
        if is_last:
            self._kept.end(leaf.planned)
        return is_last

    def _look(
        self,
        leaf: PlannedLeaf,
        window: Window,
        values: np.ndarray[Any, Any],
        watched: Watched | None,
    ) -> None:
        """Judge a block, and count it."""
        if self._guard is not None:
            self._guard.check(leaf, window, values)
        if watched is not None:
            watched.add(window, values)
        with self._lock:
            self._meter.advance(values.nbytes, str(leaf.draft_path))
