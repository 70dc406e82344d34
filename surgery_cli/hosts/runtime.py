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
from surgery_cli.hosts.coordinator import READY
from surgery_cli.settings.run import Options

START_ALL: Final = (
    "start the same command on every host, each once, none with `--dry-run`, and let process 0 be"
    " reached there"
)
START_SECONDS: Final = 300
"""So long is waited for the others to start, as JAX does by itself."""

_QUIET_SECONDS: Final = 20

_TICK_SECONDS: Final = 0.25
_SHORTEST_SECONDS: Final = 0.005
_LONGEST_SECONDS: Final = 0.05
"""Between two looks at a key that is waited for."""

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
        RuntimeError: nobody keeps them any more.
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
        until, pause = time.monotonic() + _TICK_SECONDS, _SHORTEST_SECONDS
        while True:
            try:
                value: bytes = self._client.key_value_try_get_bytes(key)
            except RuntimeError as error:
                if not _is(error, "NOT_FOUND"):
                    raise
            else:
                return value
            if time.monotonic() >= until:
                return None
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_SECONDS)

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
        """Process 0 ends: who is still there finds nobody from now on."""
        if self._keeper is not None:
            self._keeper.kill()


def _is(error: RuntimeError, status: str) -> bool:
    return str(error).startswith(status)


def connect(seat: Seat, say: Callable[[str], None] = lambda _: None) -> Board:
    """Reach what all read and write; waits until it is there. ``say`` is told if that takes long.

    Raises:
        PlanError: the port is taken, or another process on this machine has this number.
        LostProcessError: it is not there in time.
    """
    _claim(seat)
    # to load it from a cold disk takes seconds, in which no thread of ours could say that this process lives
    import tensorstore  # noqa: F401

    # its library says every step, and warns of a setting that is meant
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    keeper = _keep(seat) if seat.number == 0 else None
    try:
        return Board(_reached(seat, say), keeper)
    except BaseException:
        if keeper is not None:  # whoever is there already does not wait for this process
            keeper.kill()
        raise


def _reached(seat: Seat, say: Callable[[str], None]) -> Any:
    came: list[Any] = []
    failed: list[Exception] = []

    def come() -> None:
        try:
            _wait_for_listener(seat.address)
            came.append(jax_private.client(seat.address, start_seconds=START_SECONDS))
        except Exception as error:  # noqa: BLE001 - raised below
            failed.append(error)

    # in a thread of its own, so that Ctrl-C is heard meanwhile
    threading.Thread(target=come, name="surgery-join", daemon=True).start()
    if (
        not patiently(
            lambda: bool(came or failed),
            lambda: say(waiting(f"process 0 at {seat.address}")),
        )
        or failed
    ):
        said = f": {str(failed[0]).partition(chr(10))[0]}" if failed else ""
        raise LostProcessError(
            f"process 0 of the {seat.among} cannot be reached at {seat.address}",
            why=f"process {seat.number} tried for {START_SECONDS} seconds{said}",
            fix=START_ALL,
        )
    return came[0]


def _wait_for_listener(address: str) -> None:
    """JAX would try less and less often, and come up to 16 seconds late."""
    host, _, port = address.rpartition(":")
    while True:
        with contextlib.suppress(OSError):
            socket.create_connection((host.strip("[]"), int(port)), timeout=_QUIET_SECONDS).close()
            return
        time.sleep(_TICK_SECONDS)


def waiting(what: str) -> str:
    """What a process says that waits for others to start."""
    said = f"waiting for {what}, for {START_SECONDS} seconds at most"
    return f"{said}; one that was started with `--dry-run`, or has ended with an error, never comes"


def patiently(is_there: Callable[[], bool], say: Callable[[], None]) -> bool:
    """Wait for something at the start of a run, and say so if it takes long; False if it does not come."""
    since, has_said = time.monotonic(), False
    while not is_there():
        seconds = time.monotonic() - since
        if seconds > START_SECONDS:
            return False
        if not has_said and seconds > _QUIET_SECONDS:
            say()
            has_said = True
        time.sleep(_LONGEST_SECONDS)
    return True


_claimed: Final[list[socket.socket]] = []
"""Held until this process ends."""


def _claim(seat: Seat) -> None:
    """Take a number on this machine, where that can be: before process 0 is there, nobody else could tell.

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
        [sys.executable, "-m", "surgery_cli.hosts.coordinator", own],
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
