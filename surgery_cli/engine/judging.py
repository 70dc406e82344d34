"""What nobody writes as it stands is read, and looked at, where something must hold of it."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import partial

from surgery_cli.draft.kernel import Kit, Window
from surgery_cli.draft.seen import BlockDigests
from surgery_cli.engine.bounded_reads import Reading
from surgery_cli.engine.checks import Watched
from surgery_cli.engine.digests import Digester
from surgery_cli.engine.evaluation import Evaluation
from surgery_cli.engine.judged_reads import by_chunk, held_at_once
from surgery_cli.engine.measurements import Measurements
from surgery_cli.engine.progress import Meter
from surgery_cli.engine.reading import Readable, Values
from surgery_cli.engine.stream import Stream


class Judging:
    """Reads leaves to be judged, in a stream."""

    def __init__(
        self,
        sources: Mapping[str, Readable],
        kit: Kit,
        measurements: Measurements,
        stream: Stream,
        meter: Meter,
        lock: threading.Lock,
    ) -> None:
        """``lock``: of the meter."""
        self._sources = sources
        self._kit = kit
        self._measurements = measurements
        self._stream = stream
        self._meter = meter
        self._lock = lock

    def judge(self, left: Sequence[Watched]) -> None:
        """Read all of these, and let them be seen."""
        for watched in left:
            if watched.sight.parts is None:
                self._in_blocks(watched)
            else:
                self._in_parts(watched, watched.sight.parts)
        self._stream.finish()

    def _in_blocks(self, watched: Watched) -> None:
        evaluation = self._evaluation(watched, watched.sight.block, self._sources)
        limit, tiles = self._stream.budget.limit, self._kit.tile_elements
        block = evaluation.block_shape
        held = held_at_once(watched.recipe, block, limit, tiles)
        held += watched.working_bytes(block, tiles)
        for window in evaluation.windows:
            self._stream.start(held, self._block, evaluation, watched, window)

    def _in_parts(self, watched: Watched, reading: Reading) -> None:
        """Where blocks would take more than there may be."""
        is_by_chunk = reading.is_by_chunk
        read = by_chunk(self._sources, watched.recipe) if is_by_chunk else self._sources
        evaluation = self._evaluation(watched, reading.part, read)
        look = partial(self._block if watched.sight.grid is None else self._region, evaluation)
        for region, parts in reading.windows(watched.recipe.spec.shape):
            # the parts of a region are known only while it is its turn
            self._stream.start(reading.held_bytes, look, watched, region, list(parts))

    def _evaluation(
        self, watched: Watched, block: tuple[int, ...], sources: Mapping[str, Readable]
    ) -> Evaluation:
        known, limit = self._measurements, self._stream.budget.limit
        return Evaluation(watched.recipe, sources, self._kit, block, known, limit)

    def _block(
        self, evaluation: Evaluation, watched: Watched, window: Window, _: object = None
    ) -> None:
        values = evaluation.block(window)
        watched.add(window, values)
        self._count(watched, values)

    def _region(
        self, evaluation: Evaluation, watched: Watched, region: Window, parts: list[Window]
    ) -> None:
        """Digest the blocks of a region, part by part in C order."""
        assert watched.sight.grid is not None
        digester = Digester(watched.recipe.spec, watched.sight.grid)
        for part in parts:
            values = evaluation.block(part)
            digester.add_part(part, values)
            self._count(watched, values)
            del values  # or it would stay while the next is read
        digester.in_c_order()
        watched.put(region, BlockDigests(digester.grid, tuple(digester.blocks.items())))

    def _count(self, watched: Watched, values: Values) -> None:
        with self._lock:
            self._meter.advance(values.nbytes, str(watched.path))
