"""A process among those of one run: what they tell each other, and how all of them end when one does."""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Final, NoReturn

import msgspec

from surgery_cli import __version__
from surgery_cli.errors import LostProcessError, Problem, SurgeryError
from surgery_cli.hosts.failure import AGAIN, BUG, GONE, INTERRUPTED, Failure, sent
from surgery_cli.hosts.lives import BEAT_SECONDS, PATIENCE_SECONDS, Lives
from surgery_cli.hosts.runtime import Board, Seat
from surgery_cli.store.write.aftermath import is_unknown
from surgery_cli.words.advice import NOTHING_LEFT, worded

_LEAVING_SECONDS: Final = 1.5
_PIECE_BYTES: Final = 1 << 20
_WHOLE: Final = b"="


class Ended(BaseException):
    """Raised in process 0, wherever it is: the run has ended with another process."""


class Membership:
    """This process among those of one run. Used from the main thread; another one watches the others meanwhile."""

    def __init__(
        self,
        board: Board,
        seat: Seat,
        on_failure: Callable[[Failure], None],
        reworded: Callable[[str], str] = str,
    ) -> None:
        """``on_failure`` says why the run has ended, before this process ends; of process 0 it is not called.

        ``reworded``: what is said of fields of a plan, as who typed the command would.
        """
        self.reworded = reworded
        self.number, self.count = seat.number, seat.among
        self.failure: Failure | None = None
        """Of another process."""
        self.left_by_first = ""
        """What may stand at the destination if process 0 is gone, which alone could remove it; '' before it builds."""
        self.is_struck = False
        self.patience_seconds = PATIENCE_SECONDS
        self._board = board
        self._on_failure = on_failure
        self._has_told = False
        self._is_ending = False
        self._is_settled = False
        self._is_over = threading.Event()
        self._hosts: dict[int, str] = {}
        board.put(f"host/{self.number}", platform.node().encode())
        self._beat(0)
        self._watching = threading.Thread(target=self._watch, name="surgery-watch", daemon=True)

    def start(self) -> None:
        """Begin to watch the others, and to be watched."""
        if self.is_first:
            signal.signal(signal.SIGUSR1, self._interrupt)
        self._watching.start()

    @property
    def is_first(self) -> bool:
        """True for process 0, which places what is by reference, brings all together, and prints."""
        return self.number == 0

    @property
    def name(self) -> str:
        return f"[{self.number}/{self.count}]"

    # ---- what they tell each other

    def tell(self, key: str, value: bytes) -> None:
        """Say something that all may hear."""
        if len(value) <= _PIECE_BYTES:
            self._put(key, _WHOLE + value)
            return
        pieces = range(0, len(value), _PIECE_BYTES)
        for start in pieces:
            self._put(f"{key}#{start}", value[start : start + _PIECE_BYTES])
        self._put(key, str(len(value)).encode())

    def hear(self, key: str) -> bytes:
        """Wait for what somebody tells.

        Raises:
            Ended: the run ends.
        """
        value = self._wait(key)
        if value.startswith(_WHOLE):
            return value[len(_WHOLE) :]
        return b"".join(
            self._wait(f"{key}#{start}") for start in range(0, int(value), _PIECE_BYTES)
        )

    def give(self, key: str, value: bytes) -> None:
        """This process's part of what is gathered."""
        self.tell(f"{key}/{self.number}", value)

    def gather(self, key: str, own: bytes = b"") -> list[bytes]:
        """Give this process's part, and wait for what all others give; in the order of their numbers."""
        self.give(key, own)
        return [self.hear(f"{key}/{number}") for number in range(self.count)]

    def host_of(self, number: int) -> str:
        """The name of the machine on which a process runs."""
        if len(self._hosts) < self.count:
            with contextlib.suppress(RuntimeError):
                found = self._board.below("host")
                self._hosts = {int(key): value.decode() for key, value in found.items()}
        return self._hosts.get(number, "")

    def _put(self, key: str, value: bytes) -> None:
        try:
            self._board.put(key, value)
        except RuntimeError as error:
            raise self._nobody_there() from error

    def _wait(self, key: str) -> bytes:
        while True:
            if self.failure is not None:
                if not self.is_first:  # the thread that watches says why, and ends this process
                    time.sleep(_LEAVING_SECONDS)
                raise Ended
            try:
                value = self._board.wait(key)
            except RuntimeError as error:
                raise self._nobody_there() from error
            if value is not None:
                return value

    def _nobody_there(self) -> LostProcessError:
        return LostProcessError(self.told(Failure(0, self.host_of(0), GONE))[0])

    # ---- how they end

    def told(self, failure: Failure) -> tuple[Problem, ...]:
        """What this process says of the failure of another."""
        is_first_lost = failure.number == 0 != self.number and not failure.problems
        if is_first_lost and self.left_by_first:
            is_unknown(self.left_by_first)
        return failure.told(self.number, self.count)

    def fail(self, error: BaseException) -> None:
        """Tell all others that this process cannot go on, and why; if one of them has said so before, that counts."""
        if self._has_told or self._is_settled or self.failure is not None:
            return
        self._has_told = True
        code, problems = _said_of(error)
        problems = sent(problems, self.reworded)
        self._say_failed(Failure(self.number, self.host_of(self.number), code, problems))

    def end_others(self) -> set[int]:
        """In process 0: wait until the others have left, so that they write no more to what is removed then.

        Returns those that were not seen to leave: they are gone, or will be in a moment.
        """
        self._is_ending = True
        deadline = time.monotonic() + _LEAVING_SECONDS
        gone = {self.failure.number} if self.failure is not None else set()
        while time.monotonic() < deadline and not self._have_left() >= self._others - gone:
            time.sleep(0.02)
        return self._others - self._have_left()

    def settle(self) -> None:
        """In process 0: all that the others do is done, and what becomes of them changes nothing."""
        if self.failure is not None:
            raise Ended
        self._is_settled = True

    def finish(self) -> None:
        """In process 0: the result stands; the others may leave."""
        self._put("end/done", b"")

    def wait_for_end(self) -> None:
        """In another: until the result stands."""
        self._wait("end/done")

    def leave(self, code: int) -> NoReturn:
        """End this process at once: JAX would wait for the others, or they would be aborted."""
        self._is_ending = True
        self._is_over.set()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        if self.is_first:
            self.end_others()
            self._board.close()
        else:
            with contextlib.suppress(RuntimeError):
                self._board.put(f"left/{self.number}", b"")
        os._exit(code)

    @property
    def _others(self) -> set[int]:
        return set(range(self.count)) - {self.number}

    def _have_left(self) -> set[int]:
        with contextlib.suppress(RuntimeError):
            return set(map(int, self._board.below("left")))
        return self._others

    def _say_failed(self, failure: Failure) -> None:
        with contextlib.suppress(RuntimeError):
            self._board.put("end/failed", msgspec.msgpack.encode(failure, enc_hook=str))

    def _interrupt(self, _: int, __: FrameType | None) -> None:
        if not (self._is_ending or self._is_settled):
            raise Ended

    # ---- the thread that watches

    def _watch(self) -> None:
        lives = Lives(self._others)
        beat, before = 0, time.monotonic()
        while not self._is_over.wait(BEAT_SECONDS):
            beat += 1
            now = time.monotonic()
            if now - before > 4 * BEAT_SECONDS:  # what kept us may have kept the others
                lives.begin_anew()
            before = now
            if self.is_struck:
                self._end_struck()
            try:
                self._beat(beat)
                self.host_of(self.count - 1)
                said = self._board.below("end")
                if "failed" not in said and "done" not in said:
                    gone = lives.gone(self._board.below("beat"), self._have_left)
                    for number in gone[:1]:
                        self._say_failed(Failure(number, self.host_of(number), GONE))
                        said = self._board.below("end")
            except RuntimeError:
                continue  # who keeps the keys is gone: JAX ends us
            if "failed" in said:
                failure = msgspec.msgpack.decode(said["failed"], type=Failure)
                is_of_another = failure.number != self.number or not self._has_told
                if is_of_another and not self._is_ending:
                    self._end_with(failure)
                    return

    def _beat(self, number: int) -> None:
        said = f"{number} {self.patience_seconds}".encode()
        self._board.put(f"beat/{self.number}", said, anew=True)

    def _end_with(self, failure: Failure) -> None:
        if self._is_settled:
            return
        self.failure = failure
        if self.is_first:
            ident = threading.main_thread().ident
            assert ident is not None
            signal.pthread_kill(ident, signal.SIGUSR1)
            return
        self._is_ending = True
        self._on_failure(failure)
        self.leave(failure.code)

    def _end_struck(self) -> None:
        """The main thread has a signal to obey: the others hear of it now, whatever it is in the middle of."""
        self.fail(SystemExit())
        if not self.is_first and not self._is_over.wait(_LEAVING_SECONDS):
            self._is_ending = True
            self._on_failure(Failure(self.number, self.host_of(self.number), GONE, _ASKED))
            self.leave(GONE)


_ASKED: Final = (Problem("it was asked to end", fix=worded("{}; {}", NOTHING_LEFT, AGAIN)),)


def _said_of(error: BaseException) -> tuple[int, tuple[Problem, ...]]:
    """The exit code and the words of a process that ends with an error."""
    if isinstance(error, SurgeryError):
        return error.exit_code, error.problems
    if isinstance(error, Exception):
        said = f"this is a bug in surgery {__version__}: {type(error).__name__}: {error}"
        return BUG, (Problem(said, fix="its own output has the traceback: please report it"),)
    code = INTERRUPTED if isinstance(error, KeyboardInterrupt) else GONE
    return code, _ASKED
