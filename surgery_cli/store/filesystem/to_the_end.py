"""Requests that a signal must not leave under way: what is written after all was removed would be left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

_T = TypeVar("_T")


def to_the_end(request: Callable[[], _T]) -> _T:
    """What the request gives, which is over when this returns or raises, be it a signal's exception.

    Only the main thread gets those, so that others just make it. What has not begun by then is not made any more: a
    pool of threads would not wait for one whose start was interrupted.
    """
    if threading.current_thread() is not threading.main_thread():
        return request()
    outcome: Future[_T] = Future()

    def make() -> None:
        if outcome.set_running_or_notify_cancel():
            try:
                outcome.set_result(request())
            except BaseException as error:  # noqa: BLE001 - raised in the main thread
                outcome.set_exception(error)

    try:
        threading.Thread(target=make, name="surgery-request").start()
        return outcome.result()
    except BaseException:
        if not outcome.cancel():
            wait([outcome])
        raise
