"""When a signal may interrupt: not between the start of something and the moment from which on it is waited for."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from types import FrameType
from typing import Any

from surgery_cli.inputs.ending_signals import ENDING, INTERRUPTING


@contextmanager
def deferred() -> Iterator[None]:
    """While the block runs, what interrupts is noted, and obeyed after it; only the main thread gets any."""
    came: list[int] = []
    try:
        with _noting(came.append):
            yield
    finally:
        for number in came[:1]:
            signal.raise_signal(number)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """While the block runs, what interrupts is passed over; only the main thread gets any."""
    with _noting(lambda _: None):
        yield


@contextmanager
def _noting(note: Callable[[int], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    found: dict[int, Any] = {number: signal.getsignal(number) for number in INTERRUPTING}
    before = {number: was for number, was in found.items() if number in ENDING or callable(was)}
    is_over = False

    def handle(number: int, frame: FrameType | None) -> None:
        handler = before[number]
        if not is_over:
            note(number)
        elif callable(handler):  # what it interrupted was giving the handlers back
            handler(number, frame)
        else:
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
            signal.raise_signal(number)

    try:
        for number in before:
            signal.signal(number, handle)
        yield
    finally:
        is_over = True
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


class Threads(ThreadPoolExecutor):
    """A pool of which every thread is waited for: one whose start was interrupted would work on, unknown to it."""

    def submit(self, work: Callable[..., Any], /, *given: Any, **more: Any) -> Future[Any]:
        with deferred():
            return super().submit(work, *given, **more)
