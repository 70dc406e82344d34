"""The blocks over which the digest on record of a leaf was taken: which of them have come, whatever was asked for."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

from surgery_cli.draft.kernel import Window
from surgery_cli.engine.forecast import reading_bytes
from surgery_cli.engine.grid import block_bytes, is_inside, start_of, window_shape, windows
from surgery_cli.tree.specs import LeafSpec

Grid = tuple[int, ...]


class RecordedBlocks:
    """Of one leaf with an array. May be used from threads."""

    def __init__(self, spec: LeafSpec, grid: Grid) -> None:
        self.spec = spec
        self.grid = grid
        self._lock = threading.Lock()
        self._begun: set[Grid] = set()
        self._claimed: set[Grid] = set()

    def decoded_with(self, window: Window) -> Window | None:
        """The blocks in which a window lies, if they are to be read with it; None if the window is read alone.

        They are if it lacks a part of them, none has come, and stored chunks that it meets have all of them: these are
        decoded in any case, and would be once more.
        """
        chunks = self.spec.chunk_shape
        if chunks is None or 0 in window_shape(window):
            return None
        hull = _grown(window, self.grid, self.spec.shape)
        if hull == window or not is_inside(hull, _grown(window, chunks, self.spec.shape)):
            return None
        starts = {start_of(block) for block in self._inside(hull)}
        with self._lock:
            if starts & (self._begun | self._claimed):
                return None
            self._claimed |= starts
        return hull

    def begun(self, read: Window) -> Iterator[Window]:
        """Of a window that was read the blocks that had not come, one by one; from then on they have."""
        for block in self._inside(read):
            start = start_of(block)
            with self._lock:
                if start in self._begun:
                    continue
                self._begun.add(start)
            yield block

    def take_over(self, starts: Iterator[Grid]) -> None:
        """These have come elsewhere."""
        self._begun.update(starts)

    def missing(self) -> Iterator[Window]:
        """The blocks that have not come."""
        for block in windows(self.spec.shape, self.grid):
            if start_of(block) not in self._begun:
                yield block

    def is_read_in_parts(self, limit_bytes: int) -> bool:
        """True if a block takes more to be read than there may be: all of the leaf is then read in parts."""
        return reading_bytes(self.spec, self.grid) > limit_bytes

    def missing_bytes(self, limit_bytes: int) -> int:
        """How many bytes of values are read for what is missing."""
        missing = sum(block_bytes(self.spec, block) for block in self.missing())
        return self.spec.bytes if missing and self.is_read_in_parts(limit_bytes) else missing

    def _inside(self, read: Window) -> Iterator[Window]:
        """The blocks of which all was read."""
        if not read or 0 in self.spec.shape:
            yield read
            return
        axes = [
            [
                slice(start, min(start + part, size))
                for start in range(-(-one.start // part) * part, one.stop, part)
                if min(start + part, size) <= one.stop
            ]
            for one, part, size in zip(read, self.grid, self.spec.shape, strict=True)
        ]
        yield from itertools.product(*axes)


def _grown(window: Window, grid: Grid, shape: Grid) -> Window:
    """The window grown to whole blocks of a grid.

    >>> _grown((slice(3, 5), slice(0, 8)), (4, 3), (6, 8))
    (slice(0, 6, None), slice(0, 8, None))
    """
    return tuple(
        slice(one.start // part * part, min(-(-one.stop // part) * part, size))
        for one, part, size in zip(window, grid, shape, strict=True)
    )
