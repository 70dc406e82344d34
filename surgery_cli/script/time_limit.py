"""A limit of time for code that may not end, such as an optimizer of the user's that is tried out."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, TypeVar

from surgery_cli.words.quantities import counted

_NAME: Final = "surgery: given up after its time"

T = TypeVar("T")


class StillRunning(Exception):
    """Something was given up that has not ended in time."""


def within(seconds: float, act: Callable[[], T]) -> T:
    """What ``act`` returns, or raises, if it ends in time.

    It runs in a thread of its own: neither a compiled loop nor a compiler can be stopped. Where it does not end, it is
    given up and runs on (see ``is_running_on``). Ctrl-C is heard meanwhile.

    Raises:
        StillRunning: it has not ended.
    """
    returned: list[T] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            returned.append(act())
        except BaseException as error:  # noqa: BLE001 - raised again, by who waits
            raised.append(error)

    thread = threading.Thread(target=run, name=_NAME, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise StillRunning(f"it has not ended after {counted(round(seconds), 'second')}")
    if raised:
        raise raised[0]
    return returned[0]


def is_running_on() -> bool:
    """True if something that was given up has not ended: this process must not wait for it."""
    return any(thread.name == _NAME for thread in threading.enumerate())
