"""Events of a running command."""

from __future__ import annotations

from collections.abc import Callable

import msgspec


class Progress(msgspec.Struct, frozen=True):
    """What is going on, and how much of it is done, in bytes of values."""

    stage: str
    done_bytes: int
    total_bytes: int
    path: str = ""


Listener = Callable[[Progress], None]


class Meter:
    """Counts bytes of one stage and tells a listener."""

    def __init__(self, listener: Listener | None, stage: str, total_bytes: int) -> None:
        self._listener = listener
        self._stage = stage
        self._total = total_bytes
        self._done = 0

    def advance(self, count: int, path: str = "") -> None:
        """Say that ``count`` more bytes are done."""
        self._done += count
        if self._listener is not None:
            self._listener(Progress(self._stage, self._done, self._total, path))
