"""Why a run on many hosts ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from surgery_cli import __version__
from surgery_cli.errors import Problem, SurgeryError
from surgery_cli.words.advice import NOTHING_LEFT, Left, Text, worded

GONE: Final = 143
"""The exit code of all others when a process is gone: of those after which schedulers start a job again."""

AGAIN: Final = "start the same command again on every host"

_LEFT: Final = "\0"
"""Where in a sentence under way it is said what is left."""

BUG: Final = 70


class Failure(msgspec.Struct, frozen=True):
    """Why a run ended: what one of its processes said last; without problems, it is gone."""

    number: int
    host: str
    code: int
    problems: tuple[Problem, ...] = ()

    def told(self, teller: int, among: int) -> tuple[Problem, ...]:
        """What one of the processes says of it; where it says what is left, that is its own to know."""
        where = f" on '{self.host}'" if self.host else ""
        who = f"process {self.number} of {among}{where}"
        if self.problems:
            return tuple(
                msgspec.structs.replace(p, what=f"{who}: {p.what}", fix=_received(p.fix))
                for p in self.problems
            )
        is_own = self.number == teller
        ended = "" if self.number else "ended while this process stood still, "
        lost = Problem(
            "the other processes have taken this one for lost" if is_own else f"{who} is gone",
            why="it gave no sign of life: stopped, or its machine too busy"
            if is_own
            else f"it gives no sign of life: killed, out of memory, {ended}or its machine is lost",
            fix=worded("{}; {}", NOTHING_LEFT, AGAIN),
        )
        return (lost,)


def sent(problems: Iterable[Problem], reworded: Callable[[str], str] = str) -> tuple[Problem, ...]:
    """Problems on their way to another process of the same command, whose reader types what ``reworded`` says.

    What is left there is marked, for that one to say.
    """
    return tuple(
        msgspec.structs.replace(
            p, what=reworded(p.what), why=reworded(p.why), fix=reworded(_marked(p.fix))
        )
        for p in problems
    )


def _marked(fix: str) -> str:
    if not isinstance(fix, Text):
        return fix
    return Text(*(_LEFT if isinstance(part, Left) else part for part in fix.parts))


def _received(fix: str) -> str:
    before, mark, behind = fix.partition(_LEFT)
    return Text(before, NOTHING_LEFT, behind) if mark else fix


class EndedByAnother(SurgeryError):
    """Another process of this run has ended it: its problems, and its exit code."""

    def __init__(self, problems: tuple[Problem, ...], code: int) -> None:
        super().__init__(problems[0])
        self.problems = problems
        self.exit_code = code


NO_KEEPER: Final = (
    Problem(
        "what keeps the keys of this run is gone, by which its processes find each other",
        why="it ran beside process 0: killed, or out of memory",
        fix=worded("{}; {}", NOTHING_LEFT, AGAIN),
    ),
)
ASKED_TO_END: Final = (Problem("it was asked to end", fix=worded("{}; {}", NOTHING_LEFT, AGAIN)),)


def said_of(error: BaseException) -> tuple[int, tuple[Problem, ...]]:
    """The exit code of the others, and the words, of a process that ends with an error.

    Nobody has interrupted the others: they end as where one was terminated.
    """
    if isinstance(error, SurgeryError):
        return error.exit_code, error.problems
    if isinstance(error, Exception):
        said = f"this is a bug in surgery {__version__}: {type(error).__name__}: {error}"
        return BUG, (Problem(said, fix="its own output has the traceback: please report it"),)
    return GONE, ASKED_TO_END
