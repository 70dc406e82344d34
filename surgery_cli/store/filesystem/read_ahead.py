"""What is read of an object beyond what was asked for: more while reads follow each other, else next to nothing.

A request takes as long as some hundred kilobytes. Many small leaves that lie beside each other are read in few requests
so, and a few that lie far apart cost little more than themselves. Where it is known what will be read (``expect``),
neighbours are read together in whatever order they are asked for, and nothing twice.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Final, NamedTuple, TypeAlias

Fetch: TypeAlias = Callable[[int, int], bytes]
"""Gives the bytes of an object from one offset to another."""

Range: TypeAlias = tuple[int, int]
"""From one offset to another."""

_LEAST: Final = 64 << 10
_MOST: Final = 4 << 20
FETCHED_BYTES: Final = 1 << 20
"""Of no more than this whole objects are fetched before they are read."""
KEPT_BYTES: Final = 64 << 20
_SINGLE_READS: Final = 3
"""So many reads in a part of an object, and the whole part is read: where all parts can be kept."""


class _Window(NamedTuple):
    start: int
    stop: int
    content: Future[bytes]


def merged(ranges: Iterable[Range]) -> list[Range]:
    """What is read at once so that all these ranges are: neighbours, with the little that is between them.

    Large ranges are not among them: who reads them reads nothing else with them.

    >>> merged([(100, 200), (0, 100), (70_000, 70_001), (4 << 20, 9 << 20)])
    [(0, 200), (70000, 70001)]
    """
    found: list[Range] = []
    for start, stop in sorted(one for one in ranges if one[1] - one[0] < _MOST):
        if found and start - found[-1][1] <= _LEAST and stop - found[-1][0] <= _MOST:
            found[-1] = (found[-1][0], max(stop, found[-1][1]))
        else:
            found.append((start, stop))
    return found


class ReadAhead:
    """Windows of objects that were read lately, 64 MiB of them at most. May be used from threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._windows: OrderedDict[tuple[str, int, int], _Window] = OrderedDict()
        """In the order in which they were read last."""
        self._of: dict[str, dict[tuple[str, int, int], _Window]] = {}
        """The same by object: there may be thousands of objects, and of each some windows."""
        self._kept_bytes = 0
        self._reads: dict[tuple[str, int], int] = {}
        """How often each part of an object was read, parts being of ``_MOST`` bytes."""
        self._expected: dict[str, list[Range]] = {}

    def expect(self, name: str, ranges: Iterable[Range]) -> None:
        """These ranges of an object will be read, in any order, and no others of it."""
        with self._lock:
            self._expected[name] = merged(ranges)

    def read(self, name: str, size: int, start: int, stop: int, fetch: Fetch) -> bytes:
        """Bytes of the object of that name (one version of it) and size; ``fetch`` gets what is not there.

        At least one byte; fewer than asked for, where the rest is not in the same window: buffers ask for more than
        whoever reads.
        """
        if stop - start >= _MOST:
            return fetch(start, stop)
        with self._lock:
            window = self._around(name, start)
            is_new = window is None
            if window is None:
                window = _Window(*self._wanted(name, size, start, stop), Future())
                self._keep(name, window)
        if is_new:  # who asks for the same meanwhile waits for it
            try:
                window.content.set_result(fetch(window.start, window.stop))
            except BaseException as error:
                with self._lock:
                    self._drop((name, window.start, window.stop))
                window.content.set_exception(error)
                raise
        at = start - window.start
        return window.content.result()[at : at + stop - start]

    def _around(self, name: str, start: int) -> _Window | None:
        for key, window in self._of.get(name, {}).items():
            if window.start <= start < window.stop:
                self._windows.move_to_end(key)
                return window
        return None

    def _wanted(self, name: str, size: int, start: int, stop: int) -> tuple[int, int]:
        """From where to where to read: what is expected to be read with it. Else a whole part of a small object that is
        read again and again; of what follows on what was read, twice as much as that; else a little.
        """
        expected = self._expected.get(name, [])
        at = bisect_right(expected, (start, size)) - 1
        if at >= 0 and start < expected[at][1]:
            return expected[at]
        part = start // _MOST
        if size <= KEPT_BYTES and stop <= (part + 1) * _MOST:
            self._reads[name, part] = self._reads.get((name, part), 0) + 1
            if self._reads[name, part] > _SINGLE_READS:
                return part * _MOST, min((part + 1) * _MOST, size)
        before = [
            window.stop - window.start
            for window in self._of.get(name, {}).values()
            if window.start <= start <= window.stop + _LEAST
        ]
        length = min(2 * max(before), _MOST) if before else _LEAST
        return start, min(start + max(length, stop - start), size)

    def _keep(self, name: str, window: _Window) -> None:
        key = name, window.start, window.stop
        self._windows[key] = self._of.setdefault(name, {})[key] = window
        self._kept_bytes += window.stop - window.start
        while self._kept_bytes > KEPT_BYTES:
            self._drop(next(iter(self._windows)))

    def _drop(self, key: tuple[str, int, int]) -> None:
        name, start, stop = key
        if self._windows.pop(key, None) is not None:
            self._kept_bytes -= stop - start
            del self._of[name][key]
            if not self._of[name]:
                del self._of[name]
