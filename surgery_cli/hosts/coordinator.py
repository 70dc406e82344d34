"""The program that keeps the keys and values of a run on many hosts, beside process 0: it outlives that for a moment.

JAX's client aborts its process as soon as it finds nobody there, before a word could be said of why the run ended.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import sys
import time
from typing import Final

from surgery_cli.hosts import jax_private

READY: Final = "ready"
OVER: Final = b"."
"""What process 0 says before it ends as it should: nobody is left who would ask."""

_LINGER_SECONDS: Final = 5.0
"""Enough for the others to notice that process 0 is gone, and to say so."""

_MOMENT_SECONDS: Final = 0.2
"""In which process 0 ends that has said so; the port is free then for the next run."""

_REGISTER_SECONDS: Final = 3600
_SHUTDOWN_SECONDS: Final = 1


def main() -> None:
    """Serve at an address for so many processes, the two arguments, until standard input ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(
            number, signal.SIG_IGN
        )  # who gets one tells the others, and for that they need us
    address, count = sys.argv[1], int(sys.argv[2])
    if _is_taken(address):
        _say("another process 0, or another program, listens at that port")
        os._exit(1)
    try:
        _service = jax_private.service(
            address, count, start_seconds=_REGISTER_SECONDS, shutdown_seconds=_SHUTDOWN_SECONDS
        )
    except Exception as error:  # noqa: BLE001 - process 0 says it
        _say(str(error).partition("\n")[0])
        os._exit(1)
    _say(READY)
    said = sys.stdin.buffer.read(1)
    time.sleep(_MOMENT_SECONDS if said == OVER else _LINGER_SECONDS)
    os._exit(0)


def _is_taken(address: str) -> bool:
    """True if somebody listens there already: the service would share the port, and answer half of the calls."""
    host, _, port = address.rpartition(":")
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    try:
        with socket.socket(family) as held:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.bind((host.strip("[]"), int(port)))
    except OSError as error:
        return error.errno == errno.EADDRINUSE  # what else is wrong, the service says
    return False


def _say(line: str) -> None:
    with contextlib.suppress(OSError):  # process 0 is gone already
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
