"""TensorStore's driver for ``gs://`` says on standard error which credentials it has found, and nothing turns that off.

It looks for them at its first request, once for the process. Of what comes on standard error meanwhile those lines are
left out, and all others are passed on. Who does not say which request that is, has one made for it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from tempfile import TemporaryFile
from typing import Any, Final

_SAID_BY: Final = b"google_auth_provider.cc"
_ERRORS: Final = 2

_lock = threading.RLock()
_begun: Final[list[bool]] = []
"""Read by whoever has the lock: then it is this thread that is at it, or it is over."""
_is_over: Final[list[bool]] = []


def asked_quietly(ask: Callable[[], Any]) -> Any:
    """The future that ``ask`` gives, of something in ``gs://``; of the first request the answer is there.

    Others wait for that: theirs would be the first otherwise, while nothing is held back.
    """
    if _is_over:
        return ask()
    with _lock:
        if _begun:
            return ask()
        _begun.append(True)
        with without_lines(_SAID_BY):
            try:
                future = ask()
                with suppress(ValueError, OSError):  # who asked is told
                    future.result()
            finally:
                _is_over.append(True)
        return future


def start_quietly(spec: dict[str, Any]) -> None:
    """Let the driver find its credentials, if it has not; ``spec`` is of a folder in a bucket."""
    if _is_over:
        return
    with _lock:
        if _begun:
            return
        import tensorstore as ts

        context = ts.Context({"gcs_request_retries": {"max_retries": 1}})
        asked_quietly(lambda: ts.KvStore.open(spec, context=context).result().read(".surgery"))


@contextmanager
def without_lines(mark: bytes) -> Iterator[None]:
    """Hold back what is written to standard error inside, and pass it on at the end but for lines with ``mark``."""
    try:
        kept = os.dup(_ERRORS)
    except OSError:  # it is closed
        yield
        return
    with TemporaryFile() as held:
        os.dup2(held.fileno(), _ERRORS)
        try:
            yield
        finally:
            os.dup2(kept, _ERRORS)
            os.close(kept)
            held.seek(0)
            for line in held:
                if mark not in line:
                    os.write(_ERRORS, line)
