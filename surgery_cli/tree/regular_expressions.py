"""Regular expressions of users: Python's `re` tries as many ways as there are, and can only be interrupted."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from surgery_cli.errors import PlanError
from surgery_cli.inputs.limits import PATTERN_SECONDS


def regular_expression(text: str) -> re.Pattern[str]:
    """What the user wrote, without Python's warnings of what it may mean one day.

    Raises:
        re.error: it is none, whatever else Python calls that: numbers out of its range, flags that exclude each
            other and expressions in each other without end have errors of other types there.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return re.compile(text, re.DOTALL)
        except RecursionError:
            raise re.error("it is nested too deeply") from None
        except (OverflowError, ValueError) as error:
            raise re.error(str(error)) from None


class _Late(Exception):
    """The time is over."""


@contextmanager
def time_limit(pattern: str) -> Iterator[None]:
    """Inside, matching ends after the limit's seconds of computing; in the main thread alone.

    `re` asks for signals as it tries, and Python hands them to no other thread.

    Raises:
        PlanError: they are over.
    """
    import signal
    import threading

    if threading.current_thread() is not threading.main_thread() or not hasattr(
        signal, "setitimer"
    ):
        yield
        return

    def stop(*_: object) -> None:
        raise _Late

    before = signal.signal(signal.SIGVTALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, PATTERN_SECONDS.most)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except _Late:
        raise PlanError(
            f"'{pattern}' takes over {PATTERN_SECONDS.text(PATTERN_SECONDS.most)} to be matched with the tree",
            why="a repeat inside of a repeat, `(a+)+`, is tried in twice as many ways with each character more",
            fix="write it without, or as a glob, which never takes long;"
            f" `--limit {PATTERN_SECONDS.name}={10 * PATTERN_SECONDS.most}` waits longer",
        ) from None
    finally:
        signal.signal(signal.SIGVTALRM, signal.SIG_DFL if before is None else before)
