"""The run: every leaf that needs values is read, computed, digested and written, within a budget of bytes."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures import ThreadPoolExecutor as Pool
from functools import partial
from typing import Any

import msgspec
import numpy as np

from surgery_cli.draft.expression import Recipe
from surgery_cli.draft.kernel import Kit, Window
from surgery_cli.draft.recipe import SOURCE
from surgery_cli.engine.budget import WORKERS, Budget
from surgery_cli.engine.checked_source import CheckedSource, Recorded
from surgery_cli.engine.digests import Digester, LeafDigest
from surgery_cli.engine.evaluation import Evaluation, moves_elements, reads
from surgery_cli.engine.finite import all_finite, check_finite
from surgery_cli.engine.forecast import pending_bytes, working_bytes
from surgery_cli.engine.grid import block_shape, windows
from surgery_cli.engine.measurements import Block, Measurements, Taking
from surgery_cli.engine.progress import Meter
from surgery_cli.engine.reading import CountedSource, Readable
from surgery_cli.store.write.item import ItemWriter
from surgery_cli.store.write.item_plan import PlannedLeaf, Way
from surgery_cli.store.write.sidecars import write_shape
from surgery_cli.tree.paths import LeafPath

BATCH_BYTES = 128 << 20
"""A transaction holds no more than this, whatever the budget: larger ones only delay what overlaps with them."""


class Executed(msgspec.Struct):
    """What a run did: digests of the leaves whose values were written, and bytes of these values."""

    digests: dict[LeafPath, LeafDigest] = {}
    written_bytes: int = 0


class _Leaf:
    """A leaf being written."""

    def __init__(self, planned: PlannedLeaf, evaluation: Evaluation, tiles: int | None) -> None:
        self.planned = planned
        self.evaluation = evaluation
        block = evaluation.block_shape
        self.digester = Digester(planned.spec, block)
        self.working_bytes = working_bytes(evaluation.recipe, block, tiles)
        self.pending_bytes = pending_bytes(planned, block)


class _Batch:
    """A transaction: its blocks in the making, and the bytes that it holds until it is committed."""

    def __init__(self, context: Any) -> None:
        self.context = context
        self.opened = context.__enter__()
        self.tasks: list[Future[None]] = []
        self.held_bytes = 0


class Execution:
    """Writes the values of a draft into the items under construction.

    Blocks are read, computed and handed to a transaction by a few threads, in order; another thread commits a
    transaction while the next one fills. A block counts against the budget from before it is read until its
    transaction is committed.
    """

    def __init__(
        self,
        sources: Mapping[str, Readable],
        kit: Kit,
        *,
        memory_bytes: int,
        meter: Meter,
        allow_non_finite: bool = False,
        recorded: Mapping[str, Recorded] | None = None,
    ) -> None:
        """Nothing is read yet; ``recorded``: the digests on record that what is read must agree with, by source."""
        known = recorded or {}
        self._counted = {name: CountedSource(source) for name, source in sources.items()}
        self._sources = {
            name: CheckedSource(source, known.get(name)) for name, source in self._counted.items()
        }
        self._kit = kit
        self._measurements = Measurements()
        self._meter = meter
        self._allow_non_finite = allow_non_finite
        self.budget = Budget(max(memory_bytes, 1))
        # one transaction fills while another is committed, and blocks are in the making beside them
        self._batch_bytes = max(min(memory_bytes // 4, BATCH_BYTES), 1)
        self._lock = threading.Lock()
        self.executed = Executed()
        self._batch: _Batch | None = None
        self._running: set[Future[None]] = set()
        self._commits: set[Future[None]] = set()

    def run(self, writers: Sequence[ItemWriter]) -> Executed:
        """Write everything that is not taken by reference.

        Raises:
            ValueRefusal: the values show that an edit must not be done, or it made a value that is not finite.
            CheckpointError: a source cannot be read.
            WriteError: the new checkpoint cannot be written.
        """
        with (
            Pool(WORKERS, thread_name_prefix="surgery") as pool,
            Pool(1, thread_name_prefix="surgery-commit") as committer,
        ):
            for writer in writers:
                self._inline_values(writer)
                try:
                    for leaf in writer.plan.of(Way.ENCODE):
                        self._write_leaf(writer, leaf, pool, committer)
                    self._close(committer)
                    self._wait_for(self._running)
                except BaseException as error:
                    self._abandon(error)
                    raise
        return self.executed

    @property
    def read_bytes(self) -> int:
        """Bytes of values that were read so far, measurements included."""
        return sum(source.read_bytes for source in self._counted.values())

    def check_sources(self) -> int:
        """Hold every leaf that was read against its digest on record; how many have one, and agree.

        Raises:
            CheckpointError: one does not.
        """
        limit = self.budget.limit
        return sum(source.complete(limit) for source in self._sources.values())

    def _inline_values(self, writer: ItemWriter) -> None:
        """Values that are packed into a file: each is computed when its turn to be written comes."""
        for leaf in writer.plan.of(Way.NONE):
            is_new = not leaf.output.is_by_reference or leaf.origin is not writer.plan.item
            if leaf.spec.has_array and is_new:
                writer.keep_value(leaf, partial(self._whole_value, leaf))

    def _evaluation(self, leaf: PlannedLeaf, block: tuple[int, ...]) -> Evaluation:
        recipe = leaf.output.recipe
        return Evaluation(recipe, self._sources, self._kit, block, self._measurements)

    def _whole_value(self, leaf: PlannedLeaf) -> np.ndarray[Any, Any]:
        shape = leaf.spec.shape
        window = tuple(slice(0, n) for n in shape)
        values = self._checked_block(leaf, self._evaluation(leaf, shape), window)
        grid = block_shape(leaf.spec, leaf.spec.write_shape)
        digester = Digester(leaf.spec, grid)
        for part in windows(shape, grid):
            digester.add(part, values[part])
        self.executed.digests[leaf.draft_path] = digester.result()
        return values

    def _write_leaf(
        self,
        writer: ItemWriter,
        planned: PlannedLeaf,
        pool: Pool,
        committer: Pool,
    ) -> None:
        """Submit every block of a leaf, as the budget lets it."""
        evaluation = self._evaluation(planned, block_shape(planned.spec, write_shape(planned)))
        leaf = _Leaf(planned, evaluation, self._kit.tile_elements)
        self._measure(leaf, pool, committer)
        for window in leaf.evaluation.windows:
            held = leaf.working_bytes + leaf.pending_bytes
            self._take(held, committer)
            if self._batch is None:
                self._batch = _Batch(writer.batch())
            if window is leaf.evaluation.windows[0]:
                self._batch.opened.begin(planned)
            self._batch.held_bytes += leaf.pending_bytes
            task = pool.submit(self._write_block, leaf, window, self._batch.opened)
            self._batch.tasks.append(task)
            self._start(task)
            if self._batch.held_bytes >= self._batch_bytes:
                self._close(committer)

    def _measure(self, leaf: _Leaf, pool: Pool, committer: Pool) -> None:
        """The passes before a leaf of several blocks is written; others are measured when a block first needs it."""
        for part in leaf.evaluation.measured:
            taking = self._measurements.assign(part, leaf.evaluation)
            if taking.owner is not leaf.evaluation or len(taking.blocks) == 1:
                continue
            taking.is_begun = True
            for blocks in taking.passes():
                shares: list[Future[None]] = []
                for block in blocks:
                    self._take(leaf.working_bytes, committer)
                    shares.append(pool.submit(self._share, leaf, taking, block))
                    self._start(shares[-1])
                for share in shares:
                    share.result()

    def _share(self, leaf: _Leaf, taking: Taking, block: Block) -> None:
        try:
            taking.add(block, leaf.evaluation.share(taking, block))
        finally:
            self.budget.give(leaf.working_bytes)

    def _write_block(self, leaf: _Leaf, window: Window, batch: Any) -> None:
        try:
            values = self._checked_block(leaf.planned, leaf.evaluation, window)
            leaf.digester.add(window, values)
            batch.write(leaf.planned, window, values)
        finally:
            self.budget.give(leaf.working_bytes)
        with self._lock:
            if leaf.digester.is_complete(len(leaf.evaluation.windows)):
                self.executed.digests[leaf.planned.draft_path] = leaf.digester.result()

    def _checked_block(
        self, leaf: PlannedLeaf, evaluation: Evaluation, window: Window
    ) -> np.ndarray[Any, Any]:
        values = evaluation.block(window)
        origin = leaf.output.home
        is_ours = origin is not None and origin.source == SOURCE
        if not self._allow_non_finite and not (leaf.output.is_by_reference and is_ours):
            path = origin.path if origin is not None and is_ours else leaf.draft_path
            before = partial(self._stood_there, path, window)
            if moves_elements(evaluation.recipe):
                before = partial(self._was_read, evaluation.recipe, window, values)
            check_finite(leaf.draft_path, values, before)
        with self._lock:
            self.executed.written_bytes += values.nbytes
            self._meter.advance(values.nbytes, str(leaf.draft_path))
        return values

    def _stood_there(self, path: LeafPath, window: Window) -> np.ndarray[Any, Any] | None:
        """What the source has where a block goes; None if it has nothing there, or of another shape.

        It is looked at, not used: what is replaced because it is damaged must not refuse the run.
        """
        try:
            return np.asarray(self._counted[SOURCE].read(path, window))
        except (KeyError, IndexError, ValueError):
            return None

    def _was_read(
        self, recipe: Recipe, window: Window, values: np.ndarray[Any, Any]
    ) -> np.ndarray[Any, Any] | None:
        """The values themselves, where what they are made of has some that are not finite: elements have moved."""
        read = (
            np.asarray(self._counted[part.ref.source].read(part.ref.path, place))
            for part, place in reads(recipe, window)
        )
        return None if all(map(all_finite, read)) else values

    def _take(self, count: int, committer: Pool) -> None:
        """Wait until the budget has room for ``count`` bytes; what is larger than all of it goes alone."""
        while not self.budget.take(count):
            if not self._running:
                self._close(committer)  # only what waits for its commit is still held
            self._wait_for(self._running, until=FIRST_COMPLETED)

    def _start(self, task: Future[Any]) -> None:
        self._running.add(task)
        if len(self._running) > 8 * WORKERS:
            self._wait_for(self._running, until=FIRST_COMPLETED)

    def _wait_for(self, tasks: set[Future[None]], until: str = "ALL_COMPLETED") -> None:
        done, self._running = wait(tasks, return_when=until)
        for task in done:
            task.result()

    def _close(self, committer: Pool) -> None:
        """Let the filling transaction be committed, once its blocks are there."""
        if self._batch is not None:
            commit = committer.submit(self._commit, self._batch)
            self._commits.add(commit)
            self._start(commit)
            self._batch = None

    def _commit(self, batch: _Batch) -> None:
        wait(batch.tasks)  # one that is still written would fail once the transaction is gone
        try:
            for task in batch.tasks:
                task.result()
        except BaseException as error:
            batch.context.__exit__(type(error), error, error.__traceback__)
            raise
        batch.context.__exit__(None, None, None)
        self.budget.give(batch.held_bytes)

    def _abandon(self, error: BaseException) -> None:
        """Start nothing more, wait for what runs, and drop the filling transaction."""
        for task in self._running - self._commits:
            task.cancel()
        wait(self._running)
        if self._batch is not None:
            self._batch.context.__exit__(type(error), error, error.__traceback__)
