"""Requests that a signal must not leave under way: what is written after all was removed would be left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_T = TypeVar("_T")


def to_the_end(request: Callable[[], _T]) -> _T:
    """What the request gives, which is over when this returns or raises, be it a signal's exception.

    Only the main thread gets those, so that others just make it.
    """
    if threading.current_thread() is not threading.main_thread():
        return request()
    with ThreadPoolExecutor(1, thread_name_prefix="surgery-request") as pool:
        return pool.submit(request).result()
