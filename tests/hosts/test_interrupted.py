"""Another process fails at any moment while process 0 ends for a reason of its own: one reason is told, as an error."""

import itertools
import signal
import sys

import pytest

from surgery_cli.console import many_hosts
from surgery_cli.errors import PlanError, Problem, SurgeryError
from surgery_cli.hosts import current, membership, runtime
from surgery_cli.hosts.failure import EndedByAnother, Failure
from surgery_cli.hosts.runtime import Seat
from surgery_cli.inputs.ending_signals import ENDED_BY_ANOTHER
from surgery_cli.settings.run import Options
from tests.hosts.companies import BoardInMemory

FILES = (many_hosts.__file__, membership.__file__, __file__)


@pytest.fixture
def alone(monkeypatch):
    """Process 0 of one, which the test interrupts as the thread that watches would."""
    monkeypatch.setattr(runtime, "find_seat", lambda _: Seat("", 0, 1))
    monkeypatch.setattr(runtime, "connect", lambda *_: BoardInMemory())
    monkeypatch.setattr(membership.Watch, "start", lambda _: None)
    before = signal.getsignal(ENDED_BY_ANOTHER)
    yield
    signal.signal(ENDED_BY_ANOTHER, before)
    current.current.clear()


def ended_at(line):
    """What a refused run ends with if another process fails at that line of its ending; None if it has fewer."""
    lines, joined = itertools.count(1), []
    reason = PlanError("refused")

    def reworded(text):
        return text.replace("refused", "refused in options")

    def traced(frame, event, _):
        if frame.f_code.co_filename not in FILES:
            return None
        if event == "line" and next(lines) == line:
            (member,) = joined
            member.failure = Failure(1, "", 2, (Problem("by another"),))
            signal.raise_signal(ENDED_BY_ANOTHER)
        return traced

    def refused():
        sys.settrace(traced)
        sys._getframe().f_trace = traced
        raise reason

    try:
        with many_hosts.joined(Options(distributed=True), reworded) as member:
            joined.append(member)
            refused()
    except BaseException as error:  # noqa: BLE001 - whatever it is
        sys.settrace(None)
        return error if next(lines) > line else None
    finally:
        sys.settrace(None)
        current.current.clear()


def test_whenever_another_fails_the_run_ends_with_one_of_the_two_reasons(alone):
    ends = list(itertools.takewhile(lambda end: end is not None, map(ended_at, itertools.count(1))))
    assert len(ends) > 10
    strays = [(line, end) for line, end in enumerate(ends, 1) if not isinstance(end, SurgeryError)]
    assert not strays
    assert {type(end) for end in ends} == {PlanError, EndedByAnother}
