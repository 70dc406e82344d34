"""The budget of a run: how many bytes may be in flight at once, across threads."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Final, TypeVar

from surgery_cli.engine.freed_memory import HEAP
from surgery_cli.store.filesystem.interruptions import Threads

Task = TypeVar("Task")
Result = TypeVar("Result")


def _workers() -> int:
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        cores = os.cpu_count() or 1
    return min(max(2 * cores, 4), 32)


WORKERS: Final = _workers()
"""Blocks in the making at once, each held against the budget: for every core one that computes, and one that waits for
the disk. More than 32 were never tried."""


class Budget:
    """Bytes in flight across threads. Never more than the limit, unless one request alone is larger than it."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit = limit_bytes
        self.peak = 0
        """The most that was ever held, in bytes."""
        self._held = 0
        HEAP.allow(limit_bytes)
        self._changed = threading.Condition()

    def take(self, count: int) -> bool:
        """Hold ``count`` bytes more if they fit, or if nothing else is held; False if they do not."""
        with self._changed:
            if self._held and self._held + count > self.limit:
                return False
            self._held += count
            self.peak = max(self.peak, self._held)
        HEAP.make_room(count)
        return True

    def give(self, count: int) -> None:
        """Hold ``count`` bytes less."""
        with self._changed:
            self._held -= count
            self._changed.notify_all()


def in_order(
    function: Callable[[Task], Result],
    tasks: Iterable[tuple[Task, int]],
    limit_bytes: int,
    workers: int = WORKERS,
) -> Iterator[Result]:
    """Call ``function`` on tasks in threads; results in the tasks' order.

    Each task comes with the bytes that it holds while it runs; together they stay within ``limit_bytes``. A task
    that is larger runs alone.
    """
    budget = Budget(limit_bytes)
    running: deque[tuple[Future[Result], int]] = deque()

    def oldest() -> Result:
        future, cost = running.popleft()
        try:
            return future.result()
        finally:
            budget.give(cost)

    with Threads(workers, thread_name_prefix="surgery") as pool:
        try:
            for task, cost in tasks:
                while len(running) > 2 * workers or not budget.take(cost):
                    yield oldest()
                running.append((pool.submit(function, task), cost))
            while running:
                yield oldest()
        finally:
            for future, _ in running:
                future.cancel()
