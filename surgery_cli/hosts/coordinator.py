"""The program that keeps the keys and values of a run on many hosts, beside process 0, as long as that lives.

In a process of its own it answers the others while process 0 is stopped, which they notice by its silence.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import sys
from typing import Final

from surgery_cli.hosts import jax_private
from surgery_cli.inputs.ending_signals import ENDING

READY: Final = "ready"


def main() -> None:
    """Serve at an address, the one argument, until standard input ends."""
    for number in ENDING:
        signal.signal(
            number, signal.SIG_IGN
        )  # who gets one tells the others, and for that they need us
    address = sys.argv[1]
    if _is_taken(address):
        _say("another process 0, or another program, listens at that port")
        os._exit(1)
    try:
        _service = jax_private.service(address)
    except Exception as error:  # noqa: BLE001 - process 0 says it
        _say(str(error).partition("\n")[0])
        os._exit(1)
    _say(READY)
    sys.stdin.buffer.read()
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
