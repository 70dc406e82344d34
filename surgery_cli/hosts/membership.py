"""A process among those of one run: what they tell each other, and how all of them end when one does."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Final, NoReturn, TypeVar

import msgspec

from surgery_cli.errors import LostProcessError, Problem
from surgery_cli.hosts.failure import ASKED_TO_END, GONE, NO_KEEPER, Failure, said_of, sent
from surgery_cli.hosts.lives import BEAT_SECONDS, PATIENCE_SECONDS, Lives
from surgery_cli.hosts.roll import Roll
from surgery_cli.hosts.runtime import Board, Seat
from surgery_cli.hosts.watch import Watch
from surgery_cli.inputs.ending_signals import ENDED_BY_ANOTHER
from surgery_cli.store.write.aftermath import is_unknown

_Answer = TypeVar("_Answer")
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
        """Join. ``on_failure`` says why the run has ended, before this process ends; of process 0 it is not called.

        ``reworded``: what is said of fields of a plan, as who typed the command would.

        Raises:
            PlanError: another process has joined under this number.
            LostProcessError: process 0 is gone.
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
        self._is_alone = False
        self._lives = Lives()
        self._beats = 0
        self._roll = Roll(board, seat)
        self._watch = Watch(self._look, self._nobody_there)
        try:
            self._roll.join()
        except RuntimeError as error:
            raise LostProcessError(self.told(Failure(0, self.host_of(0), GONE))[0]) from error

    def start(self) -> None:
        """Begin to watch the others, and to be watched."""
        if self.is_first:
            signal.signal(ENDED_BY_ANOTHER, self._interrupt)
        self._watch.start()

    def meet(self, say: Callable[[str], None]) -> None:
        """Wait until all have joined; ``say`` is told if that takes long.

        Raises:
            PlanError: one of them was told of another number of processes.
            LostProcessError: not all came in time.
            Ended: the run ends.
        """
        self._roll.wait_for_all(self._heed, say)

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
        """The name of the machine on which a process runs; '' if it is not known."""
        return self._roll.host_of(number)

    def _put(self, key: str, value: bytes) -> None:
        self._asked(lambda: self._board.put(key, value))

    def _wait(self, key: str) -> bytes:
        while (value := self._asked(lambda: self._board.wait(key))) is None:
            pass
        return value

    def _asked(self, question: Callable[[], _Answer]) -> _Answer:
        """What the board answers; if it does not, the thread that watches ends this process."""
        while True:
            self._heed()
            with contextlib.suppress(RuntimeError):
                return question()
            time.sleep(BEAT_SECONDS)

    def _heed(self) -> None:
        if self.failure is not None:
            if not self.is_first:  # the thread that watches says why, and ends this process
                time.sleep(_LEAVING_SECONDS)
            raise Ended

    # ---- how they end

    def told(self, failure: Failure) -> tuple[Problem, ...]:
        """What this process says of the failure of another."""
        is_first_lost = failure.number == 0 != self.number and not failure.problems
        if is_first_lost and self.left_by_first:
            is_unknown(self.left_by_first)
        return failure.told(self.number, self.count)

    def fail(self, error: BaseException) -> None:
        """Tell all others that this process cannot go on, and why; if one of them has said so before, that counts."""
        if self._has_told:
            return
        if not self.is_first:  # it may have stood still, and fail as what was built is gone since
            try:
                self._obey(self._board.below("end"), lost_alone=True)
            except RuntimeError:  # if that lasts, the thread that watches ends this process
                time.sleep(2 * PATIENCE_SECONDS)
        self._has_told = True  # from here on this process ends by itself, and nothing interrupts it
        if self.failure is not None:
            return
        code, problems = said_of(error)
        told = sent(problems, self.reworded)
        self._say_failed(Failure(self.number, self.host_of(self.number), code, told))

    def end_others(self) -> set[int]:
        """In process 0: wait until the others have left, so that they write no more to what is removed then.

        Returns those that were not seen to leave: they are gone, or will be in a moment.
        """
        self._is_ending = True
        deadline = time.monotonic() + _LEAVING_SECONDS
        gone = {self.failure.number} if self.failure is not None else set()
        others, left = set(range(self.count)) - {self.number}, set[int]()
        while True:
            with contextlib.suppress(RuntimeError):
                others, left = self._joined_others(), self._have_left()
            if left >= others - gone or time.monotonic() >= deadline:
                return others - left
            time.sleep(0.02)

    def settle(self) -> None:
        """In process 0: all that the others do is done, and what becomes of them changes nothing."""
        if self.failure is not None:
            raise Ended
        self._is_settled = True

    def finish(self) -> None:
        """In process 0: the result stands, whether or not the others hear of it; they may leave."""
        self._has_told = True
        with contextlib.suppress(RuntimeError):
            self._board.put("end/done", b"")

    def wait_for_end(self) -> None:
        """In another: until the result stands."""
        self._wait("end/done")

    def leave(self, code: int) -> NoReturn:
        """End this process at once, as the others expect it."""
        self._is_ending = True
        self._watch.stop()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        if self.is_first:
            self.end_others()
            self._board.close()
        elif not self._is_alone:
            with contextlib.suppress(RuntimeError):
                self._board.put(f"left/{self.number}", b"")
        os._exit(code)

    def _joined_others(self) -> set[int]:
        return self._roll.joined() - {self.number}

    def _have_left(self) -> set[int]:
        return set(map(int, self._board.below("left")))

    def _say_failed(self, failure: Failure) -> None:
        with contextlib.suppress(RuntimeError):
            self._board.put("end/failed", msgspec.msgpack.encode(failure, enc_hook=str))

    def _interrupt(self, _: int, __: FrameType | None) -> None:
        if not (self._is_ending or self._is_settled or self._has_told):
            raise Ended

    # ---- the thread that watches

    def _look(self, was_kept: bool) -> None:
        if was_kept:  # what kept us may have kept the others
            self._lives.begin_anew()
        if self.is_struck:
            self._end_struck()
        self._beats += 1
        said = f"{self._beats} {self.patience_seconds}".encode()
        self._board.put(f"beat/{self.number}", said, anew=True)
        ends = self._board.below("end")
        if "failed" not in ends and "done" not in ends:
            beats = self._board.below("beat")
            for number in self._lives.gone(self._joined_others(), beats, self._have_left)[:1]:
                self._say_failed(Failure(number, self.host_of(number), GONE))
                ends = self._board.below("end")
        self._obey(ends)

    def _obey(self, ends: dict[str, bytes], *, lost_alone: bool = False) -> None:
        if "failed" in ends:
            failure = msgspec.msgpack.decode(ends["failed"], type=Failure)
            is_told = failure.number == self.number and self._has_told
            if not (is_told or (lost_alone and failure.problems)):
                self._end_with(failure)

    def _nobody_there(self) -> None:
        """The board is gone, and with it whoever keeps it: process 0."""
        self._is_alone = True
        if self.is_first:
            self._board.close()  # should it be stopped, nobody waits for its answers any more
        self._end_with(Failure(0, self.host_of(0), GONE, NO_KEEPER if self.is_first else ()))

    def _end_with(self, failure: Failure) -> None:
        if self._is_settled or self._is_ending:
            return
        self._watch.stop()
        self.failure = failure
        if self.is_first:
            ident = threading.main_thread().ident
            assert ident is not None
            signal.pthread_kill(ident, ENDED_BY_ANOTHER)
            return
        self._is_ending = True
        self._on_failure(failure)
        self.leave(failure.code)

    def _end_struck(self) -> None:
        """The main thread has a signal to obey: the others hear of it now, whatever it is in the middle of."""
        self.fail(SystemExit())
        if not self.is_first and not self._watch.wait(_LEAVING_SECONDS):
            self._is_ending = True
            self._on_failure(Failure(self.number, self.host_of(self.number), GONE, ASKED_TO_END))
            self.leave(GONE)
