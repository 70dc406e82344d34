"""One leaf while it is written, and the transaction that takes its blocks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from surgery_cli.draft.expression import is_repeatable
from surgery_cli.draft.kernel import Window
from surgery_cli.engine.budget import Budget
from surgery_cli.engine.checks import Watched
from surgery_cli.engine.digests import Digester, checksum
from surgery_cli.engine.evaluation import Evaluation
from surgery_cli.engine.executed import Executed
from surgery_cli.engine.forecast import pending_bytes, working_bytes
from surgery_cli.engine.freed_memory import HEAP
from surgery_cli.engine.grid import block_bytes, is_inside, start_of
from surgery_cli.engine.held import Band
from surgery_cli.engine.measurements import Block, Taking
from surgery_cli.store.write.arrays import Batch
from surgery_cli.store.write.item_plan import PlannedLeaf
from surgery_cli.store.write.item_writer import ItemWriter
from surgery_cli.store.write.journal import Done


class LeafInWork:
    """A leaf being written; of one that is cut, others write the blocks that are not among ``windows``."""

    def __init__(
        self,
        planned: PlannedLeaf,
        evaluation: Evaluation,
        tiles: int | None,
        watched: Watched | None,
    ) -> None:
        self.planned = planned
        self.evaluation = evaluation
        self.watched = watched
        self.windows = evaluation.windows
        if planned.referred is not None and not planned.referred.is_read:
            self.windows = list(planned.referred.written)
        block = evaluation.block_shape
        self.digester = Digester(planned.spec, block)
        self.working_bytes = working_bytes(evaluation.composition, block, tiles)
        if watched is not None:
            self.working_bytes += watched.working_bytes(block, tiles)
        self.pending_bytes = pending_bytes(planned, block)
        self.is_cut = False
        self.left = len(self.windows)
        """Blocks that are not written yet."""
        self.standing: set[tuple[int, ...]] = set()
        """Where those start that an earlier run has written, and that are what it recorded."""
        self.kept_bytes = 0
        """What is kept of stored leaves until then."""

    def cut_to(self, windows: Sequence[Window]) -> None:
        """Leave all other blocks to other processes."""
        self.is_cut = self.planned.is_read_whole and len(windows) < len(self.windows)
        self.windows = list(windows)
        self.left = len(self.windows)

    @property
    def missing(self) -> list[Window]:
        """The blocks that are to be written."""
        return [window for window in self.windows if start_of(window) not in self.standing]

    def block(self, window: Window, band: Band | None, budget: Budget) -> np.ndarray[Any, Any]:
        """The values of a block; those that were read for it and others go with the last of them."""
        values = self.evaluation.block(window, band)
        if band is not None:
            band.leave(budget)
        return values

    def tell(self, executed: Executed, window: Window, digest: bytes) -> None:
        """Note that a block is written: of a leaf that others write as well by itself, else once there are all."""
        path = self.planned.draft_path
        if not self.planned.is_read_whole:
            executed.parts.setdefault(path, []).append((window, digest))
        elif not self.left and self.is_cut:
            executed.cut[path] = self.digester
        elif not self.left:
            executed.digests[path] = self.digester.result()

    def share(self, taking: Taking, block: Block) -> None:
        """Add what a block gives to a measurement."""
        taking.add(block, self.evaluation.share(taking, block))

    def parts_to_write(self, window: Window) -> list[Window]:
        """What is written of a block: all of it, or the chunks in it that are not taken as they are."""
        referred = self.planned.referred
        if referred is None or not referred.is_read:
            return [window]
        return [part for part in referred.written if is_inside(part, window)]


class Written(NamedTuple):
    """A block that was written, its digest, and what it is known by if it is read back."""

    leaf: PlannedLeaf
    window: Window
    digest: bytes
    checksum: bytes


class Transaction:
    """A batch, and what was written in it: it is put on record once that is committed."""

    def __init__(self, batch: Batch, *, is_read_back: bool) -> None:
        """``is_read_back``: once it is committed, and not by who writes it."""
        self.batch = batch
        self.is_read_back = is_read_back
        self.blocks: list[Written] = []

    @property
    def done(self) -> list[Done]:
        """Of what was written, what need not be made again."""
        return [
            Done(leaf.draft_path, start_of(window), block_bytes(leaf.spec, window), digest)
            for leaf, window, digest, _ in self.blocks
            if is_repeatable(leaf.output.recipe)
        ]

    def read_back(self, writer: ItemWriter) -> None:
        """Once it is committed: what can be read back by now need not be at the end."""
        if writer.early is not None:
            for leaf, window, _, known in self.blocks:
                HEAP.make_room_for_one(block_bytes(leaf.spec, window))
                writer.early.read(leaf, window, partial(_has_checksum, known))

    def begin(self, leaf: PlannedLeaf) -> None:
        self.batch.begin(leaf)

    def write(self, leaf: PlannedLeaf, window: Window, values: np.ndarray[Any, Any]) -> None:
        self.batch.write(leaf, window, values)


def _has_checksum(known: bytes, values: np.ndarray[Any, Any]) -> bool:
    return checksum(values) == known
