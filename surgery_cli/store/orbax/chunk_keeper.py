"""Decoded chunks of stored arrays that are kept while blocks in them are read."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from surgery_cli.draft.kernel import Window
from surgery_cli.store.orbax.contexts import VALUES_POOL
from surgery_cli.store.orbax.zarr import ArrayDocument
from surgery_cli.tree.dtypes import item_bytes

if TYPE_CHECKING:
    import tensorstore as ts


class ChunkKeeper:
    """Keeps the decoded chunks of arrays that are read in blocks smaller than their chunks.

    Else a chunk would be decoded anew for every block in it. What was read whole is let go. May be used from threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._contexts: dict[str, ts.Context] = {}
        self._read: dict[str, int] = {}
        """Elements read of each array, from the first block to the last; blocks that need nothing kept count too."""

    def context(self, name: str, bytes_kept: int, parent: Callable[[], ts.Context]) -> ts.Context:
        """A context for an array, whose cache has room for ``bytes_kept`` of its chunks; ``parent`` is made once."""
        import tensorstore as ts

        with self._lock:
            if name not in self._contexts:
                limit = bytes_kept + bytes_kept // 8  # what the cache counts beside the values
                pool = {VALUES_POOL: {"total_bytes_limit": limit}}
                self._contexts[name] = ts.Context(pool, parent=parent())
            return self._contexts[name]

    def holds(self, name: str) -> bool:
        """True if chunks of that array may be kept already."""
        with self._lock:
            return name in self._contexts

    def count_read(self, name: str, elements: int, of: int) -> None:
        """So many elements ``of`` an array were read; once that is all of them, its chunks go."""
        with self._lock:
            self._read[name] = self._read.get(name, 0) + elements
            is_all = self._read[name] >= of
        if is_all:
            self.let_go(name)

    def let_go(self, name: str) -> None:
        """Keep no chunks of an array; who reads of it once more begins anew."""
        with self._lock:
            self._read.pop(name, None)
            self._contexts.pop(name, None)


_KEEPS: Final = ContextVar("keeps", default=True)
_PART: Final[ContextVar[Window | None]] = ContextVar("part", default=None)


@contextmanager
def keeping_no_chunks() -> Iterator[None]:
    """What is read here, in this thread, is a part of a chunk that no block after it lies in: the chunk is not kept."""
    before = _KEEPS.set(False)
    try:
        yield
    finally:
        _KEEPS.reset(before)


@contextmanager
def reading_around(part: Window) -> Iterator[None]:
    """What is read here, in this thread, is read for this part of it: others come back to the same chunks."""
    before = _PART.set(part)
    try:
        yield
    finally:
        _PART.reset(before)


def read_for(window: Window | None) -> Window | None:
    """The block for whose sake a window is read: itself, if nothing else was said."""
    return _PART.get() or window


def bytes_kept(document: ArrayDocument, window: Window | None) -> int:
    """Bytes of the chunks around a block that are kept once it is read: if other blocks lie in them too; else 0.

    Blocks in C order come back to the chunks of a row of them: all that a block's rows can meet.
    """
    if window is None or not _KEEPS.get():
        return 0
    around = [
        min(-(-part.stop // step) * step, size) - part.start // step * step
        for part, step, size in zip(window, document.chunk_shape, document.shape, strict=True)
    ]
    if math.prod(around) <= math.prod(part.stop - part.start for part in window):
        return 0
    count: int = math.prod(around)
    return count * item_bytes(document.dtype)
