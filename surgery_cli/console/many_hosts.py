"""A command that is one of several processes: how it joins them, speaks, and ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, cast

from surgery_cli.errors import Problem, SurgeryError
from surgery_cli.hosts.current import current
from surgery_cli.hosts.options import refuse_strays
from surgery_cli.settings.run import Options

if TYPE_CHECKING:
    from surgery_cli.hosts.failure import Failure
    from surgery_cli.hosts.membership import Membership


@contextmanager
def joined(options: Options, reworded: Callable[[str], str] = str) -> Iterator[Membership | None]:
    """While the block runs, this process is one of those that `--distributed` brings together; None without it.

    What goes wrong is told to the others as ``reworded`` puts it.

    Raises:
        PlanError: what options say of processes does not go together.
        EndedByAnother: another process has ended the run.
    """
    refuse_strays(options)
    if not options.distributed:
        yield None
        return
    from surgery_cli.hosts import membership as hosts
    from surgery_cli.hosts.failure import EndedByAnother
    from surgery_cli.hosts.runtime import connect, find_seat
    from surgery_cli.store.write.aftermath import with_aftermath

    def ended(failure: Failure) -> SurgeryError:
        return with_aftermath(EndedByAnother(member.told(failure), failure.code))

    seat = find_seat(options)
    if seat.number:
        _speak_as(f"[{seat.number}/{seat.among}] ")
    member = hosts.Membership(
        connect(seat, _wait), seat, lambda failure: _say(ended(failure).problems), reworded
    )
    try:
        try:
            current.append(member)
            member.start()
            member.meet(_wait)
            yield member
        except BaseException as error:
            member.fail(error)
            raise
    except BaseException as error:
        # also what came of another's failure while this process was about to tell its own
        if member.failure is not None and not isinstance(error, SurgeryError):
            raise ended(member.failure) from error
        raise


def _say(problems: Sequence[Problem]) -> None:
    """Print why another process has ended the run."""
    from surgery_cli.console.printing import print_problems

    print_problems(problems, is_json=False)


def _wait(said: str) -> None:
    """Say what is waited for."""
    sys.stderr.write(f"{said}\n")
    sys.stderr.flush()


def _speak_as(name: str) -> None:
    """From now on say nothing on standard output, and everything on standard error with ``name`` in front."""
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - until the process ends
    sys.stderr = cast("TextIO", _Named(sys.stderr, name))


class _Named:
    """A stream that begins every line with a name."""

    def __init__(self, stream: TextIO, name: str) -> None:
        self._stream = stream
        self._name = name
        self._is_at_start = True

    def write(self, text: str) -> int:
        lines = text.splitlines(keepends=True)
        for line in lines:
            self._stream.write(self._name + line if self._is_at_start else line)
            self._is_at_start = line.endswith("\n")
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
