"""Progress: a bar where somebody looks, a line now and then where nobody does."""

import io

import pytest

from surgery_cli.console.progress import ProgressLine
from surgery_cli.surgery import Progress

MIB = 1 << 20


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class TerminalStream(io.StringIO):
    def isatty(self):
        return True


class ClosedStream(io.StringIO):
    def write(self, _):
        raise BrokenPipeError


@pytest.fixture
def clock():
    return Clock()


def test_a_log_gets_a_line_every_ten_seconds(clock):
    stream = io.StringIO()
    with ProgressLine(stream, clock=clock) as line:
        for second in range(25):
            clock.now = float(second)
            line(Progress("writing", second * MIB, 50 * MIB, "params/w"))

    assert stream.getvalue() == (
        "10.0 s: writing  20% of 50.0 MiB, 1.0 MiB/s, 40.0 s left\n"
        "20.0 s: writing  40% of 50.0 MiB, 1.0 MiB/s, 30.0 s left\n"
    )


def test_a_terminal_gets_a_bar_that_is_removed_at_the_end(clock):
    stream = TerminalStream()
    with ProgressLine(stream, clock=clock, width=100) as line:
        line(Progress("writing", 0, 4 * MIB))
        clock.now = 1.0
        line(Progress("writing", 2 * MIB, 4 * MIB, "params/\x1bw"))

    assert stream.getvalue() == (
        "\r\x1b[K████████████░░░░░░░░░░░░ writing  50% of 4.0 MiB, 2.0 MiB/s, 1.0 s left"
        "  params/\\x1bw"
        "\r\x1b[K"
    )


def test_a_command_that_tells_nothing_shows_on_a_terminal_that_it_lives(clock):
    stream = TerminalStream()
    with ProgressLine(stream, clock=clock, width=100) as line:
        line.show_life()
        assert stream.getvalue() == ""
        clock.now = 1.0
        line.show_life()
        line(Progress("reading", 0, 0))
        clock.now = 3.0
        line.show_life()

    assert "working, 1.0 s\r" in stream.getvalue()
    assert "working, 3.0 s\r" in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_nobody_hears_of_life_in_a_log(clock):
    stream = io.StringIO()
    with ProgressLine(stream, clock=clock):
        clock.now = 9.0
    assert stream.getvalue() == ""


def test_a_short_command_draws_nothing(clock):
    stream = TerminalStream()
    with ProgressLine(stream, clock=clock) as line:
        clock.now = 0.4
        line(Progress("writing", MIB, 4 * MIB))

    assert stream.getvalue() == ""


def test_a_bar_never_wraps(clock):
    stream = TerminalStream()
    with ProgressLine(stream, clock=clock, width=40) as line:
        clock.now = 1.0
        line(Progress("writing", 2 * MIB, 4 * MIB, "params/" + "w" * 100))

    (_, bar, _) = stream.getvalue().split("\r\x1b[K")
    assert len(bar) < 40
    assert bar.endswith("…")


def test_a_stage_has_its_own_rate(clock):
    stream = TerminalStream()
    with ProgressLine(stream, clock=clock, width=100) as line:
        line(Progress("reading", 0, 10 * MIB))
        clock.now = 10.0
        line(Progress("writing", 0, 10 * MIB))
        clock.now = 11.0
        line(Progress("writing", 5 * MIB, 10 * MIB))

    assert "5.0 MiB/s, 1.0 s left" in stream.getvalue()


def test_work_goes_on_when_standard_error_is_closed(clock):
    with ProgressLine(ClosedStream(), clock=clock) as line:
        clock.now = 11.0
        line(Progress("writing", MIB, 2 * MIB))
        clock.now = 30.0
        line(Progress("writing", 2 * MIB, 2 * MIB))
