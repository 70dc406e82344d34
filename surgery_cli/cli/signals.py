"""Signals that ask a command to end: exceptions while it works, and what is said at the end."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Final

from surgery_cli.console.printable import over_progress
from surgery_cli.hosts.current import current
from surgery_cli.inputs.ending_signals import ENDING, INTERRUPTING

struck: Final[list[BaseException]] = []
"""The signal that asked this command to end."""

_PATIENCE_SECONDS: Final = 1.0
_LATER_SECONDS: Final = (0.05, 0.25, 1.0)
"""After a signal, the main thread is woken so many times, each so long after the one before."""

_STOPPING: Final = "stopping: what is in work now is finished first"


class Terminated(BaseException):
    """A signal asked the program to end; raised, so that whatever was begun is cleaned up."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def say_ended(how: str) -> None:
    """Say what stands after a signal: nothing, or a destination that was whole before the signal came.

    A second signal is passed over: the first one is being obeyed.
    """
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in ENDING}
    try:
        from surgery_cli.console.printable import escaped
        from surgery_cli.store.write.aftermath import aftermath

        sys.stderr.write(escaped(f"{how}; {aftermath()}") + "\n")
    finally:
        for number, handler in handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


@contextlib.contextmanager
def caught() -> Iterator[None]:
    """While the block runs, a request to end is an exception, so that whatever was begun is cleaned up.

    Where that takes longer than a moment, it is said: a block that is being computed or written cannot be cut short.
    """
    own = os.getpid()

    def end(number: int, _: FrameType | None) -> None:
        if os.getpid() != own:  # a process that the user's code forked ends as any other
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        if says_so:
            signal.setitimer(signal.ITIMER_REAL, _PATIENCE_SECONDS)
        for member in current:
            member.is_struck = True
        struck.append(KeyboardInterrupt() if number == signal.SIGINT else Terminated(number))
        raise struck[-1]

    struck.clear()
    replaced = {
        number: handler
        for number in ENDING
        # `nohup` has SIGHUP ignored, and so it stays
        if (handler := signal.getsignal(number)) in (signal.SIG_DFL, signal.default_int_handler)
    }
    says_so = signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
    if says_so:
        signal.signal(signal.SIGALRM, _say_stopping)
    for number in replaced:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in replaced.items():
            signal.signal(number, handler)
        if says_so:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)


@contextlib.contextmanager
def never_missed() -> Iterator[None]:
    """While the block runs, the main thread also heeds a signal that comes just as it begins to wait without end.

    Python notes a signal when it comes, looks at its notes before it waits, and while it waits only if it is woken:
    one that comes in between, or to another thread, would be obeyed when the wait is over, if it ever is.
    """
    if signal.getsignal(signal.SIGURG) is not signal.SIG_DFL:
        yield
        return
    noted, note = os.pipe()
    os.set_blocking(note, False)
    main = threading.get_ident()

    def wake() -> None:
        while found := os.read(noted, 64):
            if not set(found).isdisjoint(INTERRUPTING):
                for seconds in _LATER_SECONDS:
                    time.sleep(seconds)
                    signal.pthread_kill(main, signal.SIGURG)
        os.close(noted)

    signal.signal(signal.SIGURG, lambda *_: None)
    before = signal.set_wakeup_fd(note, warn_on_full_buffer=False)
    threading.Thread(target=wake, name="surgery-signals", daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(note)
        signal.signal(signal.SIGURG, signal.SIG_DFL)


def _say_stopping(_: int, __: FrameType | None) -> None:
    """Say, in the middle of whatever the main thread does, why the program has not ended yet."""
    # over a bar, if one is drawn; what is being written at this moment, or was closed, is let be
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        sys.stderr.write(f"{over_progress(sys.stderr)}{_STOPPING}\n")
        sys.stderr.flush()
