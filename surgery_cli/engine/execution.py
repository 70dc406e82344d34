"""The run: every leaf that needs values is read, computed, digested and written, within a budget of bytes."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from surgery_cli.engine.evaluation import Evaluation, working_bytes
from surgery_cli.engine.grid import Window, block_shape, windows
from surgery_cli.engine.progress import Meter
from surgery_cli.engine.reading import CountedSource, Readable
from surgery_cli.operations.base import Kit
from surgery_cli.store.item_plan import PlannedLeaf, Way
from surgery_cli.store.item_writer import ItemWriter
from surgery_cli.store.sidecar_edits import write_shape
from surgery_cli.tree.paths import LeafPath
from surgery_cli.verification.digests import Digester, LeafDigest
from surgery_cli.verification.finite import check_finite

if TYPE_CHECKING:
    import numpy as np

WORKERS = 4
"""Blocks in the making at once: two cores, each with one block computing and one waiting for the disk."""


class Executed(msgspec.Struct):
    """What a run did: digests of the leaves whose values were written, and bytes of these values."""

    digests: dict[LeafPath, LeafDigest] = {}
    written_bytes: int = 0


class Budget:
    """Bytes in flight across threads: who asks for more than is left waits, but one may always go on."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit = limit_bytes
        self.peak = 0
        self._held = 0
        self._changed = threading.Condition()

    @contextmanager
    def holding(self, count: int) -> Iterator[None]:
        """Hold ``count`` bytes; a request larger than the limit is let through alone."""
        with self._changed:
            self._changed.wait_for(lambda: self._held == 0 or self._held + count <= self.limit)
            self._held += count
            self.peak = max(self.peak, self._held)
        try:
            yield
        finally:
            with self._changed:
                self._held -= count
                self._changed.notify_all()


class Execution:
    """Writes the values of a draft into the items under construction."""

    def __init__(
        self,
        sources: Mapping[str, Readable],
        kit: Kit,
        *,
        memory_bytes: int,
        meter: Meter,
        allow_non_finite: bool = False,
    ) -> None:
        self._sources = {name: CountedSource(source) for name, source in sources.items()}
        self._kit = kit
        self._meter = meter
        self._allow_non_finite = allow_non_finite
        # half for what transactions hold until their commit, half for blocks in the making
        self._batch_bytes = max(memory_bytes // 4, 1)
        self.budget = Budget(max(memory_bytes // 2, 1))
        self._lock = threading.Lock()
        self.executed = Executed()

    def run(self, writers: Sequence[ItemWriter]) -> Executed:
        """Write everything that is not taken by reference.

        Raises:
            ValueRefusal: the values show that an edit must not be done, or it made a value that is not finite.
            CheckpointError: a source cannot be read.
            WriteError: the new checkpoint cannot be written.
        """
        with ThreadPoolExecutor(WORKERS, thread_name_prefix="surgery") as pool:
            for writer in writers:
                self._inline_values(writer)
                self._arrays(writer, pool)
        return self.executed

    @property
    def read_bytes(self) -> int:
        """Bytes of values that were read so far, measurements included."""
        return sum(source.read_bytes for source in self._sources.values())

    def _inline_values(self, writer: ItemWriter) -> None:
        """Values that are packed into a file: each is computed when its turn to be written comes."""
        for leaf in writer.plan.of(Way.NONE):
            is_new = leaf.spec.has_array and leaf.origin is not writer.plan.item
            if leaf.recipe.steps or is_new:
                writer.keep_value(leaf, partial(self._whole_value, leaf))

    def _whole_value(self, leaf: PlannedLeaf) -> np.ndarray[Any, Any]:
        shape = leaf.spec.shape
        evaluation = Evaluation(leaf.recipe, self._sources, self._kit, shape)
        window = tuple(slice(0, n) for n in shape)
        values = self._checked_block(leaf, evaluation, window)
        grid = block_shape(leaf.spec, leaf.spec.write_shape)
        digester = Digester(leaf.spec, grid)
        for part in windows(shape, grid):
            digester.add(part, values[part])
        self._record(leaf, digester.result())
        return values

    def _arrays(self, writer: ItemWriter, pool: ThreadPoolExecutor) -> None:
        """Stored arrays, in batches that are cut by bytes; one batch commits while the next is computed."""
        committing: Future[None] | None = None
        for group in self._batches(writer.plan.of(Way.ENCODE)):
            batch = writer.batch()
            opened = batch.__enter__()
            try:
                for task in [
                    pool.submit(self._write_block, leaf, evaluation, digester, window, opened)
                    for leaf, evaluation, digester, window in group
                ]:
                    task.result()
            except BaseException as error:
                batch.__exit__(type(error), error, error.__traceback__)
                raise
            if committing is not None:
                committing.result()
            committing = pool.submit(_end, batch)
        if committing is not None:
            committing.result()

    def _batches(self, leaves: Sequence[PlannedLeaf]) -> Iterator[list[Any]]:
        group: list[Any] = []
        held = 0
        for leaf in leaves:
            shape = block_shape(leaf.spec, write_shape(leaf))
            evaluation = Evaluation(leaf.recipe, self._sources, self._kit, shape)
            digester = Digester(leaf.spec, evaluation.block_shape)
            grid = evaluation.windows()
            share = leaf.spec.bytes // max(len(grid), 1)
            for number, window in enumerate(grid):
                if group and held + share > self._batch_bytes:
                    yield group
                    group, held = [], 0
                group.append((leaf, evaluation, digester, window))
                held += share
                if number == len(grid) - 1 and held > self._batch_bytes:
                    yield group
                    group, held = [], 0
        if group:
            yield group

    def _write_block(
        self,
        leaf: PlannedLeaf,
        evaluation: Evaluation,
        digester: Digester,
        window: Window,
        batch: Any,
    ) -> None:
        with self.budget.holding(working_bytes(leaf.spec, evaluation.block_shape)):
            values = self._checked_block(leaf, evaluation, window)
            digester.add(window, values)
            batch.write(leaf, window, values)
        with self._lock:
            if digester.is_complete(evaluation.count):
                self._record(leaf, digester.result())

    def _checked_block(
        self, leaf: PlannedLeaf, evaluation: Evaluation, window: Window
    ) -> np.ndarray[Any, Any]:
        values = evaluation.block(window)
        if leaf.recipe.steps and not self._allow_non_finite:
            check_finite(leaf.draft_path, values, lambda: evaluation.origin_block(window))
        with self._lock:
            self.executed.written_bytes += values.nbytes
            self._meter.advance(values.nbytes, str(leaf.draft_path))
        return values

    def _record(self, leaf: PlannedLeaf, digest: LeafDigest) -> None:
        self.executed.digests[leaf.draft_path] = digest


def _end(batch: Any) -> None:
    batch.__exit__(None, None, None)
