"""Several processes of one run: threads that meet at a board in memory, or real ones that JAX brings together."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp

from surgery_cli import surgery
from surgery_cli.errors import LostProcessError
from surgery_cli.hosts import membership as members
from surgery_cli.hosts.membership import Membership
from surgery_cli.hosts.runtime import Seat
from surgery_cli.settings.run import Options
from surgery_cli.store.write import aftermath

REPOSITORY = Path(__file__).resolve().parents[2]
CUT_ELEMENTS = 10 << 20
"""Two blocks of bfloat16, three of float32."""


class BoardInMemory:
    """As ``Board``, for threads of one process; what one of them says when it fails ends the waiting of all.

    Nobody watches them, who would end a process that asks the real one again and again: so `Ended` is raised here.
    """

    def __init__(self):
        self.values = {}
        self.is_over = False
        self.changed = threading.Condition()

    def put(self, key, value, *, anew=False):
        with self.changed:
            if key in self.values and not anew:
                return False
            self.values[key] = value
            self.is_over |= key == "end/failed"
            self.changed.notify_all()
        return True

    def wait(self, key):
        with self.changed:
            self.changed.wait_for(lambda: key in self.values or self.is_over, timeout=60)
            if key not in self.values:
                raise members.Ended("another thread has failed")
            return self.values[key]

    def below(self, folder):
        front = f"{folder}/"
        with self.changed:
            return {k.removeprefix(front): v for k, v in self.values.items() if k.startswith(front)}


def joined(threads):
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "it has not heard that the run is over"


def apply_together(count, source, destination, plan, options=Options()):
    """As ``surgery.apply``, by so many threads; what the first of them reports. ``plan`` makes one for each."""
    board, failed = BoardInMemory(), []
    aftermath.begin_anew()

    def member(number):
        return Membership(board, Seat("", number, count), lambda _: None)

    def take_part(number):
        membership = member(number)
        try:
            surgery.take_part(
                str(source), str(destination), plan(), options=options, membership=membership
            )
        except BaseException as error:  # noqa: BLE001 - whatever it is ends the others
            failed.append(error)
            membership.fail(error)

    threads = [threading.Thread(target=take_part, args=[n], daemon=True) for n in range(1, count)]
    for thread in threads:
        thread.start()
    membership = member(0)
    membership.end_others = lambda: None
    try:
        report = surgery.apply(
            str(source), str(destination), plan(), options=options, membership=membership
        )
    except BaseException as error:  # noqa: BLE001 - so that the threads end
        membership.fail(error)
        joined(threads)
        every = [error, *failed]
        others = (LostProcessError, members.Ended)
        raise next((e for e in every if not isinstance(e, others)), error) from None
    joined(threads)
    if failed:
        raise failed[0]
    return report


class Ended(NamedTuple):
    code: int
    out: str
    err: str
    seconds: float
    """From the moment when it was waited for."""


class Processes:
    """The same command, started so many times on this machine."""

    def __init__(self, count, *arguments, own=None, environment=None, only=None):
        """``own``: of each process, what it is told that others are not; ``only`` those that are started."""
        self.address = address = f"127.0.0.1:{free_port()}"
        word = [sys.executable, "-m", "surgery_cli"]
        self.started = [
            subprocess.Popen(
                [
                    *word,
                    *map(os.fspath, arguments),
                    *["--distributed", "--coordinator", address],
                    *["--process", str(number), "--processes", str(count)],
                    *(own or {}).get(number, []),
                ],
                cwd=REPOSITORY,
                env={**os.environ, "COLUMNS": "100", **(environment or {})},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for number in (range(count) if only is None else only)
        ]

    def end(self, number, how=signal.SIGKILL):
        self.started[number].send_signal(how)

    def ended(self, seconds=300):
        """How each of them ended; nobody may take longer."""
        began = time.monotonic()
        found = [None] * len(self.started)

        def wait(number):
            out, err = self.started[number].communicate(timeout=seconds)
            code, took = self.started[number].returncode, time.monotonic() - began
            found[number] = Ended(code, out, err, took)

        threads = [threading.Thread(target=wait, args=[n]) for n in range(len(found))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for process in self.started:
            process.kill()
        assert None not in found, found
        return found


def free_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


def saved(folder, tree, chunk_bytes=4 << 20, **how):
    """A checkpoint by Orbax, its leaves in chunks of at most so many bytes."""
    arguments = jax.tree.map(lambda _: ocp.SaveArgs(chunk_byte_size=chunk_bytes), tree)
    with ocp.PyTreeCheckpointer(**how) as checkpointer:
        checkpointer.save(folder, jax.tree.map(jax.numpy.asarray, tree), save_args=arguments)
    return folder


def tree_to_cut():
    """One leaf that is most of the work, and some that are small."""
    draw = np.random.default_rng(7)
    large = draw.standard_normal((CUT_ELEMENTS // 1024, 1024), np.float32)
    small = {f"layer_{n}": {"kernel": draw.standard_normal((64, 32), np.float32)} for n in range(6)}
    return {"params": {"embed": large, **small}, "step": np.int32(3)}


def restored(folder):
    with ocp.PyTreeCheckpointer() as checkpointer:
        return checkpointer.restore(folder)


def assert_same_bits(a, b):
    """Two trees that Orbax restored are the same, bit for bit."""
    left, right = jax.tree.flatten_with_path(a)[0], jax.tree.flatten_with_path(b)[0]
    assert [path for path, _ in left] == [path for path, _ in right]
    for (path, one), (_, other) in zip(left, right, strict=True):
        assert np.asarray(one).dtype == np.asarray(other).dtype, path
        assert np.shape(one) == np.shape(other), path
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes(), path
