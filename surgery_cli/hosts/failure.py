"""Why a run on many hosts ended."""

from __future__ import annotations

from typing import Final

import msgspec

from surgery_cli.errors import Problem, SurgeryError

GONE: Final = 143
"""The exit code of all others when a process is gone: of those after which schedulers start a job again."""


BUG: Final = 70
INTERRUPTED: Final = 130


class Failure(msgspec.Struct, frozen=True):
    """Why a run ended: what one of its processes said last; without problems, it is gone."""

    number: int
    host: str
    code: int
    problems: tuple[Problem, ...] = ()

    def told(self, among: int, left: str, left_by_first: str) -> tuple[Problem, ...]:
        """What the other processes say of it: ``left`` stands now; ``left_by_first`` if the first one is gone."""
        who = f"process {self.number} of {among} on '{self.host}'"
        if not self.problems:
            stands = left if self.number else left_by_first
            lost = Problem(
                f"{who} is gone",
                why="it gives no sign of life: killed, out of memory, or its machine is lost",
                fix=f"{stands}; start the same command again on every host",
            )
            return (lost,)
        return tuple(
            msgspec.structs.replace(problem, what=f"{who}: {problem.what}")
            for problem in self.problems
        )


class EndedByAnother(SurgeryError):
    """Another process of this run has ended it: its problems, and its exit code."""

    def __init__(self, problems: tuple[Problem, ...], code: int) -> None:
        super().__init__(problems[0])
        self.problems = problems
        self.exit_code = code
