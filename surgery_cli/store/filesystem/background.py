"""Work that goes on while something else is waited for, in a thread that ends with it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")

IN_BACKGROUND = "surgery-ahead"
"""The name of such threads."""


def in_background(work: Callable[_P, _T], *given: _P.args, **more: _P.kwargs) -> Future[_T]:
    """What the work will give. Nothing is left of it that had to be closed."""
    found: Future[_T] = Future()

    def run() -> None:
        try:
            found.set_result(work(*given, **more))
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            found.set_exception(error)

    threading.Thread(target=run, name=IN_BACKGROUND, daemon=True).start()
    return found
