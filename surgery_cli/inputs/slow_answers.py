"""A word for who waits while a service gives nothing: its libraries wait, and try again, for minutes without one."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

PATIENCE_SECONDS = 20.0
"""So long nothing is said, and three times as long between two words."""

_numbers: Final = itertools.count()


class _Waiting:
    """What is asked for just now, by when that began, and the thread that looks at it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.since: dict[int, tuple[float, str]] = {}
        self.tellers: list[Callable[[str], None]] = []
        self.is_watched = False
        self.said = -math.inf

    def watch(self) -> None:
        """Say now and then what is waited for, until nothing is."""
        while True:
            with self.lock:
                if not self.since:
                    self.is_watched = False
                    return
                began, address = min(self.since.values())
            now = time.monotonic()
            if now - began > PATIENCE_SECONDS and now - self.said > 3 * PATIENCE_SECONDS:
                self.said = now
                for tell in self.tellers:
                    tell(f"{address} has given nothing for {now - began:.0f} s; it is still asked")
            time.sleep(PATIENCE_SECONDS / 20)


_waiting: Final = _Waiting()


@contextmanager
def told_to(tell: Callable[[str], None]) -> Iterator[None]:
    """Inside, ``tell`` takes the words; where nobody does, as in a script of the user's, there are none."""
    _waiting.tellers.append(tell)
    try:
        yield
    finally:
        _waiting.tellers.remove(tell)


@contextmanager
def waited_for(address: str) -> Iterator[None]:
    """Inside, something is asked of a service: what stands at an address."""
    if not _waiting.tellers:
        yield
        return
    number = next(_numbers)
    with _waiting.lock:
        _waiting.since[number] = (time.monotonic(), address)
        is_watched, _waiting.is_watched = _waiting.is_watched, True
    if not is_watched:
        threading.Thread(target=_waiting.watch, name="surgery-waiting", daemon=True).start()
    try:
        yield
    finally:
        with _waiting.lock:
            del _waiting.since[number]
