"""Who has joined a run on many hosts, and from which host: read from the board, by everyone."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Callable

from surgery_cli.errors import LostProcessError, PlanError
from surgery_cli.hosts.runtime import START_ALL, START_SECONDS, Board, Seat, patiently, waiting
from surgery_cli.words.lists import listed


class Roll:
    """The processes that have joined so far, whether or not they still live."""

    def __init__(self, board: Board, seat: Seat) -> None:
        self._board = board
        self._seat = seat
        self._said: dict[int, tuple[int, str]] = {}

    def join(self) -> None:
        """Be there: by one key, so that who is there is known with its host, and from then on expected to live.

        Raises:
            RuntimeError: nobody keeps the board any more.
            PlanError: another process has joined under this number.
        """
        seat = self._seat
        if self._board.put(f"host/{seat.number}", f"{seat.among} {platform.node()}".encode()):
            return
        raise PlanError(
            f"another process {seat.number} of the {seat.among} runs on '{self.host_of(seat.number)}'",
            why=f"it came to {seat.address} before this one, and each has a number of its own",
            fix=f"start each process once, with a number of its own from 0 to {seat.among - 1}",
        )

    def joined(self) -> set[int]:
        """Their numbers.

        Raises:
            RuntimeError: nobody keeps the board any more.
        """
        if len(self._said) < self._seat.among:
            for key, said in self._board.below("host").items():
                among, _, host = said.decode().partition(" ")
                self._said[int(key)] = int(among), host
        return set(self._said)

    def host_of(self, number: int) -> str:
        """The name of the machine on which one runs; '' if it is not known."""
        if number not in self._said:
            with contextlib.suppress(RuntimeError):
                self.joined()
        return self._said.get(number, (0, ""))[1]

    def wait_for_all(self, heed: Callable[[], None], say: Callable[[str], None]) -> None:
        """Until all have joined; ``heed`` raises what ends the waiting, and ``say`` is told if it takes long.

        Raises:
            PlanError: one of them was told of another number of processes.
            LostProcessError: not all came in time.
        """
        seat = self._seat
        missing = f"all {seat.among} processes"

        def have_come() -> bool:
            nonlocal missing
            heed()
            with contextlib.suppress(RuntimeError):  # whoever watches finds out
                absent = sorted(set(range(seat.among)) - self.joined())
                self._refuse_another_count()
                missing = f"process {listed(map(str, absent), word='and')} of {seat.among}"
                return not absent
            return False

        if not patiently(have_come, lambda: say(waiting(f"{missing} at {seat.address}"))):
            raise LostProcessError(
                f"{missing} did not come to {seat.address}",
                why=f"process {seat.number} waited {START_SECONDS} seconds",
                fix=START_ALL,
            )

    def _refuse_another_count(self) -> None:
        own = self._seat.among
        for number, (among, host) in sorted(self._said.items()):
            if among != own:
                raise PlanError(
                    f"process {number} on '{host}' was told that there are {among} processes, this one {own}",
                    why="work is shared among as many as there are",
                    fix="give all of them the same `--processes`",
                    field="processes",
                )
