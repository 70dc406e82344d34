"""The run: every leaf that needs values is read, computed, digested and written, within a budget of bytes."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np

from surgery_cli.draft.check import Check
from surgery_cli.draft.expression import Recipe
from surgery_cli.draft.kernel import Kit, Window
from surgery_cli.engine.checked_source import CheckedSource, Recorded
from surgery_cli.engine.checks import Checks, Watched, refuse_breaches
from surgery_cli.engine.composition import Composition
from surgery_cli.engine.decoding import held_bytes, is_read_once
from surgery_cli.engine.digests import Digester, LeafDigest, block_digest
from surgery_cli.engine.evaluation import Evaluation
from surgery_cli.engine.forecast import pending_bytes, working_bytes
from surgery_cli.engine.grid import block_shape, is_inside, relative, windows
from surgery_cli.engine.guard import FiniteGuard
from surgery_cli.engine.measurements import Block, Measurements, Taking
from surgery_cli.engine.progress import Meter
from surgery_cli.engine.reading import CountedSource, Readable
from surgery_cli.engine.stream import Stream
from surgery_cli.store.write.item_plan import PlannedLeaf, Way
from surgery_cli.store.write.item_writer import ItemWriter
from surgery_cli.store.write.sidecars import write_shape
from surgery_cli.tree.paths import LeafPath


class Executed(msgspec.Struct):
    """What a run did: digests of the leaves whose values were written, and bytes of these values."""

    digests: dict[LeafPath, LeafDigest] = {}
    parts: dict[LeafPath, list[tuple[Window, bytes]]] = {}
    """Of leaves whose other chunks are taken as they are: what was written, with the digest of each block."""
    written_bytes: int = 0


class _Leaf:
    """A leaf being written."""

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
        self.left = len(self.windows)
        """Blocks that are not written yet."""
        self.kept_bytes = 0
        """What is kept of stored leaves until then."""


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
        is_alone: bool = False,
    ) -> None:
        """Nothing is read yet; ``recorded``: the digests on record that what is read must agree with, by source.

        ``checks``: what must hold; ``checks.findings`` say what was found. ``is_alone``: see ``Stream``.
        """
        known = recorded or {}
        self._counted = {name: CountedSource(source) for name, source in sources.items()}
        self._sources = {
            name: CheckedSource(source, known.get(name)) for name, source in self._counted.items()
        }
        self._kit = kit
        self._measurements = Measurements()
        self.checks = Checks(checks, self._sources, kit, self._measurements)
        self._meter = meter
        self._guard = None if allow_non_finite else FiniteGuard(self._counted)
        self._stream = Stream(memory_bytes, is_alone=is_alone)
        self._lock = threading.Lock()
        self.executed = Executed()

    def run(self, writers: Sequence[ItemWriter]) -> Executed:
        """Write everything that is not taken by reference; what must hold of the rest is judged first.

        Raises:
            ValueRefusal: the values show that an edit must not be done, or it made a value that is not finite.
            CheckpointError: a source cannot be read.
            WriteError: the new checkpoint cannot be written.
        """
        with self._stream as stream:
            try:
                self._judge(self.checks.left(_written(writers)))
                for writer in writers:
                    for leaf in _inline(writer):  # computed when its turn to be written comes
                        writer.keep_value(leaf, partial(self._whole_value, leaf))
                    for leaf in writer.plan.computed:
                        self._write_leaf(writer, leaf)
                    stream.finish()
            except BaseException as error:
                stream.abandon(error)
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
        limit = self._stream.budget.limit
        return sum(source.complete(limit) for source in self._sources.values())

    def _judge(self, left: Sequence[Watched]) -> None:
        """Read what nobody writes as it stands where something must hold of it.

        Raises:
            ValueRefusal: it does not.
        """
        for watched in left:
            spec = watched.recipe.spec
            evaluation = self._evaluation(watched.recipe, block_shape(spec, spec.write_shape))
            block, tiles = evaluation.block_shape, self._kit.tile_elements
            held = working_bytes(Composition(watched.recipe), block, tiles) + watched.working_bytes(
                block, tiles
            )
            for window in evaluation.windows:
                self._stream.start(held, self._judge_block, evaluation, watched, window)
        self._stream.finish()
        refuse_breaches(self.checks.findings())

    def _judge_block(self, evaluation: Evaluation, watched: Watched, window: Window) -> None:
        values = evaluation.block(window)
        watched.add(window, values)
        with self._lock:
            self._meter.advance(values.nbytes, str(watched.path))

    def _evaluation(self, recipe: Recipe, block: tuple[int, ...]) -> Evaluation:
        return Evaluation(recipe, self._sources, self._kit, block, self._measurements)

    def _whole_value(self, leaf: PlannedLeaf) -> np.ndarray[Any, Any]:
        shape = leaf.spec.shape
        evaluation = self._evaluation(leaf.output.recipe, shape)
        window = tuple(slice(0, n) for n in shape)
        watched = self.checks.of(leaf.output.recipe)
        values = self._checked_block(leaf, evaluation, window, watched)
        grid = block_shape(leaf.spec, leaf.spec.write_shape)
        digester = Digester(leaf.spec, grid)
        for part in windows(shape, grid):
            digester.add(part, values[part])
        with self._lock:
            self.executed.written_bytes += values.nbytes
            self.executed.digests[leaf.draft_path] = digester.result()
        return values

    def _write_leaf(self, writer: ItemWriter, planned: PlannedLeaf) -> None:
        """Submit every block of a leaf, as the budget lets it."""
        recipe = planned.output.recipe
        is_whole = planned.is_read_whole
        unit = write_shape(planned)
        block = block_shape(planned.spec, unit, *(() if is_whole else (1,)))
        watched = self.checks.of(recipe) if is_whole else None
        leaf = _Leaf(planned, self._evaluation(recipe, block), self._kit.tile_elements, watched)
        self._measure(leaf)
        if is_read_once(planned, self._stream.budget.limit):
            leaf.kept_bytes = held_bytes(planned)
            self._stream.hold(leaf.kept_bytes)
            leaf.evaluation.keep_all()
        for number, window in enumerate(leaf.windows):
            self._stream.fill(
                leaf.working_bytes,
                leaf.pending_bytes,
                writer.batch,
                self._write_block,
                leaf,
                window,
                begin=None if number else lambda batch: batch.begin(planned),
            )

    def _measure(self, leaf: _Leaf) -> None:
        """The passes before a leaf of several blocks is written; others are measured when a block first needs it."""
        for part in leaf.evaluation.unmeasured:
            taking = self._measurements.assign(part, leaf.evaluation)
            if taking.owner is not leaf.evaluation or len(taking.blocks) == 1:
                continue
            taking.is_begun = True
            for blocks in taking.passes():
                shares = [
                    self._stream.start(leaf.working_bytes, self._share, leaf, taking, block)
                    for block in blocks
                ]
                for share in shares:
                    share.result()

    def _share(self, leaf: _Leaf, taking: Taking, block: Block) -> None:
        taking.add(block, leaf.evaluation.share(taking, block))

    def _write_block(self, batch: Any, leaf: _Leaf, window: Window) -> None:
        values = self._checked_block(leaf.planned, leaf.evaluation, window, leaf.watched)
        planned, executed = leaf.planned, self.executed
        written = 0
        for part in _parts_to_write(planned, window):
            chunk = values if part == window else values[relative(part, window)]
            batch.write(planned, part, chunk)
            written += chunk.nbytes
        if planned.is_read_whole:
            leaf.digester.add(window, values)
        with self._lock:
            executed.written_bytes += written
            leaf.left -= 1
            if not planned.is_read_whole:
                parts = executed.parts.setdefault(planned.draft_path, [])
                parts.append((window, block_digest(values)))
            elif not leaf.left:
                executed.digests[planned.draft_path] = leaf.digester.result()
        if not leaf.left and leaf.kept_bytes:
            leaf.evaluation.let_go()
            self._stream.budget.give(leaf.kept_bytes)

    def _checked_block(
        self,
        leaf: PlannedLeaf,
        evaluation: Evaluation,
        window: Window,
        watched: Watched | None,
    ) -> np.ndarray[Any, Any]:
        values = evaluation.block(window)
        if self._guard is not None:
            self._guard.check(leaf, window, values)
        if watched is not None:
            watched.add(window, values)
        with self._lock:
            self._meter.advance(values.nbytes, str(leaf.draft_path))
        return values


def _parts_to_write(leaf: PlannedLeaf, window: Window) -> list[Window]:
    """What is written of a block: all of it, or the chunks in it that are not taken as they are."""
    if leaf.referred is None or not leaf.referred.is_read:
        return [window]
    return [part for part in leaf.referred.written if is_inside(part, window)]


def _inline(writer: ItemWriter) -> list[PlannedLeaf]:
    """The leaves whose values are packed into a file, as far as they are not taken as they stand there."""
    return [
        leaf
        for leaf in writer.plan.of(Way.NONE)
        if leaf.spec.has_array
        and not (leaf.output.is_by_reference and leaf.origin is writer.plan.item)
    ]


def _written(writers: Sequence[ItemWriter]) -> list[Recipe]:
    """What is computed or read, all of it, in order to write it."""
    return [
        leaf.output.recipe
        for writer in writers
        for leaf in (*writer.plan.computed, *_inline(writer))
        if leaf.is_read_whole
    ]
