"""JAX's own runtime for many processes, as far as it is needed: who is there, and keys and values that all see.

What JAX has for it in public (`jax.distributed`) gives no access to these, takes SIGTERM for itself, and makes every
device of the hosts part of the run. `jax_private` knows the rest.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from surgery_cli.errors import LostProcessError, PlanError
from surgery_cli.hosts import jax_private
from surgery_cli.hosts.coordinator import OVER, READY
from surgery_cli.settings.run import Options

START_SECONDS: Final = 300
"""So long is waited for the others to start, as JAX does by itself."""

_QUIET_SECONDS: Final = 20

_TICK_SECONDS: Final = 0.25
_ELSEWHERE: Final = (
    "JAX finds them out on TPU slices, GKE, Slurm and Open MPI; elsewhere each process is told"
)


class Seat(NamedTuple):
    """A process ``among`` so many: its number, and where process 0 keeps what all can read."""

    address: str
    number: int
    among: int


def find_seat(options: Options) -> Seat:
    """What the options say, and where they do not, what JAX finds in the process's surroundings.

    Raises:
        PlanError: neither tells, or what they tell cannot be.
    """
    address = options.coordinator or os.environ.get("JAX_COORDINATOR_ADDRESS")
    number, count = options.process, options.processes
    if None in (address, number, count):
        try:
            address, number, count = jax_private.detect(
                address, number, count, start_seconds=START_SECONDS
            )
        except Exception as error:
            raise PlanError(
                "JAX cannot find out which processes there are",
                why=f"{type(error).__name__}: {error}",
                fix="add `--coordinator HOST:PORT`, `--process N` and `--processes N`",
            ) from error
    told = {"--coordinator HOST:PORT": address, "--process N": number, "--processes N": count}
    missing = [f"`{option}`" for option, value in told.items() if value is None]
    if address is None or number is None or count is None:
        raise PlanError(
            f"`--distributed` does not know {'which processes there are' if len(missing) > 1 else missing[0]}",
            why=_ELSEWHERE,
            fix=f"add {', '.join(missing)}",
        )
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise PlanError(
            f"'{address}' is no address of process 0",
            why="it is a host and a port that is free there",
            fix="as `--coordinator 10.0.0.1:8476`",
        )
    if number >= count:
        raise PlanError(
            f"there is no process {number} of {count}",
            why="processes are counted from 0",
            fix=f"give every one a number of its own, from 0 to {count - 1}",
        )
    return Seat(address, number, count)


class Board:
    """Keys with values that every process sees; a key is written once, unless ``anew``.

    Raises (all methods):
        RuntimeError: nobody keeps them any more; JAX is about to end this process.
    """

    def __init__(self, client: Any, keeper: subprocess.Popen[bytes] | None) -> None:
        self._client = client
        self._keeper = keeper

    def put(self, key: str, value: bytes, *, anew: bool = False) -> bool:
        """Write a value; False if the key has one already."""
        try:
            self._client.key_value_set_bytes(key, value, allow_overwrite=anew)
        except RuntimeError as error:
            if _is(error, "ALREADY_EXISTS"):
                return False
            raise
        return True

    def wait(self, key: str) -> bytes | None:
        """The value of a key, waited for a moment; None if it has none by then."""
        try:
            value: bytes = self._client.blocking_key_value_get_bytes(key, int(_TICK_SECONDS * 1000))
        except RuntimeError as error:
            if _is(error, "DEADLINE_EXCEEDED"):
                return None
            raise
        return value

    def below(self, folder: str) -> dict[str, bytes]:
        """The values of all keys `folder/…`, by the rest of the key."""
        front = f"{folder}/"
        try:
            pairs = self._client.key_value_dir_get_bytes(front)
        except RuntimeError as error:
            if _is(error, "NOT_FOUND"):
                return {}
            raise
        return {key[key.index(front) + len(front) :]: value for key, value in pairs}

    def close(self) -> None:
        """Process 0 has seen all others leave, and ends at once: JAX aborts who is still there in a moment."""
        if self._keeper is not None and self._keeper.stdin is not None:
            with contextlib.suppress(OSError):
                os.write(self._keeper.stdin.fileno(), OVER)


def _is(error: RuntimeError, status: str) -> bool:
    return str(error).startswith(status)


def connect(seat: Seat, say: Callable[[str], None] = lambda _: None) -> Board:
    """Join the other processes; waits until all are there. ``say`` is told if that takes long.

    Raises:
        PlanError: the port is taken, or another process came under the same number.
        LostProcessError: not all came in time.
    """
    _claim(seat)
    # to load it from a cold disk takes seconds, in which no thread of ours could say that this process lives
    import tensorstore  # noqa: F401

    # as JAX itself does: its library says every step
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    keeper = _keep(seat) if seat.number == 0 else None
    client = jax_private.client(seat.address, seat.number, start_seconds=START_SECONDS)
    failed: list[Exception] = []

    def come() -> None:
        try:
            client.connect()
        except Exception as error:  # noqa: BLE001 - raised below
            failed.append(error)

    coming = threading.Thread(target=come, name="surgery-join", daemon=True)
    coming.start()
    since, has_said = time.monotonic(), False
    while coming.is_alive():  # so that Ctrl-C is heard meanwhile
        coming.join(_TICK_SECONDS)
        if not has_said and time.monotonic() - since > _QUIET_SECONDS:
            say(
                f"waiting at {seat.address} for all {seat.among} processes, for {START_SECONDS} seconds at most;"
                " one that ended before it came is not missed sooner, and two that say one number are one"
            )
            has_said = True
    if failed and time.monotonic() - since < START_SECONDS:
        raise PlanError(
            f"process {seat.number} was turned away at {seat.address}",
            why=f"another one came as process {seat.number} of the {seat.among}, or process 0 has ended",
            fix=f"start each process once, with a number of its own from 0 to {seat.among - 1}",
        )
    if failed:
        raise LostProcessError(
            f"not all {seat.among} processes came together at {seat.address}",
            why=f"process {seat.number} waited {START_SECONDS} seconds: {str(failed[0]).partition(chr(10))[0]}",
            fix="start the same command on every host, each once, and let process 0 be reached there",
        )
    return Board(client, keeper)


_claimed: Final[list[socket.socket]] = []
"""Held until this process ends."""


def _claim(seat: Seat) -> None:
    """Take a number on this machine, where that can be: JAX is asked who is there only once all are.

    Raises:
        PlanError: another process here has taken it.
    """
    if sys.platform != "linux":  # elsewhere no name goes with the process that has it
        return
    held = socket.socket(socket.AF_UNIX)
    try:
        held.bind(f"\0surgery {seat.address} {seat.number}")
    except OSError as error:
        held.close()
        if error.errno == errno.EADDRINUSE:
            raise PlanError(
                f"another process {seat.number} of the {seat.among} runs on this machine",
                why=f"it came to {seat.address} before this one, and each has a number of its own",
                fix=f"give every process another `--process`, from 0 to {seat.among - 1}",
            ) from None
        return
    _claimed.append(held)


def _keep(seat: Seat) -> subprocess.Popen[bytes]:
    """Start what keeps the board, at the port of the address, on all of the machine's own addresses as JAX does."""
    host, _, port = seat.address.rpartition(":")
    own = os.environ.get("JAX_COORDINATOR_BIND_ADDRESS", f"[::]:{port}")
    if host in ("localhost", "127.0.0.1"):
        own = seat.address  # nobody else can reach it there
    keeper = subprocess.Popen(  # noqa: S603 - this program itself
        [sys.executable, "-m", "surgery_cli.hosts.coordinator", own, str(seat.among)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert keeper.stdout is not None
    said = keeper.stdout.readline().decode(errors="replace").strip()
    if said != READY:
        keeper.communicate()
        raise PlanError(
            f"process 0 cannot be reached at {seat.address}",
            why=said or f"what keeps the keys there ended with code {keeper.returncode}",
            fix="let one process be `--process 0`, and name a port that is free on its machine, the same on every host",
        )
    return keeper
