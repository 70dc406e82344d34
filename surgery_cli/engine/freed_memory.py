"""Freed memory that goes back to the system before a run holds more of it than it may."""

from __future__ import annotations

import ctypes
import sys
import threading
from functools import cache
from typing import Any, Final

from surgery_cli.settings.heap import LARGEST_REUSED_BYTES
from surgery_cli.store.filesystem.memory_limits import resident_bytes

_SPARE_BYTES: Final = 32 << 20
"""What may lie free in the heap beside all that may be used: what is given back has to be cleared to come again."""

_CHECKED_EACH_BYTES: Final = 8 << 20
"""So much is asked for between two looks at the process, which cost as much as a tiny leaf."""

_READING: Final = 3
"""So many times its size a stored unit takes while it is read: as it is stored, decoded, and as it is asked for."""


class _Figures(ctypes.Structure):
    """What glibc tells of its heap, in bytes."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("from_system", "count_free", "count_small", "count_mapped", "mapped"),
            *("unused", "free_small", "used", "free", "at_end"),
        )
    )


class Heap:
    """The memory that the C library has taken for this process.

    Blocks come in many sizes, and one goes where a larger one was: what is left between them belongs to nobody, and
    stays. Half as much again as `--memory` came together so, while layers of a model were stacked. It all goes back
    once used and unused memory together are more than may be used; until then, blocks come from what was used before.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._library: Any = None
        self._limit_bytes = 0
        self._beside = 0
        """What the process has that does not come from here: code, stacks. 0 until it has to be known."""
        self._unchecked = 0

    def allow(self, limit_bytes: int) -> None:
        """From now on values may take so much.

        Nothing goes back yet: in a process with a large heap that takes longer than a small edit.
        """
        self._library = _glibc()
        with self._lock:
            self._limit_bytes, self._beside = limit_bytes, 0

    def make_room(self, count: int) -> None:
        """So many bytes are about to be asked for: what is unused goes back if it is too much by now."""
        if self._library is None:
            return
        with self._lock:
            self._unchecked += count
            if self._unchecked < _CHECKED_EACH_BYTES:
                return
            self._unchecked = 0
            self._keep_below(self._limit_bytes + _SPARE_BYTES)

    def make_room_for_one(self, count: int) -> None:
        """A stored window of so many bytes is about to be read; a large one uses nothing of what lies free.

        A block that is made in passes asks for room once, and then reads many of them.
        """
        if self._library is None or count <= LARGEST_REUSED_BYTES:
            return
        with self._lock:
            self._keep_below(self._limit_bytes - _READING * count)

    def _keep_below(self, most_bytes: int) -> None:
        if resident_bytes() - self._beside > most_bytes:
            self._give_back()

    def _give_back(self) -> None:
        self._library.malloc_trim(0)
        figures = self._library.mallinfo2()
        self._beside = resident_bytes() - figures.used - figures.mapped


@cache
def _glibc() -> Any:
    """The C library, where it is one that tells of its heap."""
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None)
    try:
        library.mallinfo2.restype = _Figures
    except AttributeError:
        return None
    return library


HEAP: Final = Heap()
"""That of this process."""
