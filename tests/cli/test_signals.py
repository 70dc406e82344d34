"""What is said when a signal ends a command."""

import importlib
import os
import signal
import subprocess
import sys
import time

import pytest

from surgery_cli import surgery as use_cases
from surgery_cli.cli import signals
from surgery_cli.cli.commands import apply
from surgery_cli.store.write import aftermath, staging


@pytest.fixture(autouse=True)
def nothing_completed_before():
    aftermath.begin_anew()


@pytest.mark.parametrize(
    ("blow", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (signals.Terminated(signal.SIGTERM), 143, "terminated"),
    ],
)
def test_a_signal_during_the_report_says_that_the_destination_is_complete(
    surgery, checkpoint, tmp_path, monkeypatch, blow, code, said
):
    def strike(*_, **__):
        raise blow

    monkeypatch.setattr(apply, "print_report", strike)
    new = tmp_path / "new"
    ended = surgery("compact", checkpoint, new)
    assert ended.code == code
    assert ended.err.endswith(f"{said}; '{new}' is complete, only its report is missing\n")
    monkeypatch.undo()
    assert surgery("verify", new, "--like", checkpoint).code == 0


def test_a_signal_before_the_destination_stands_says_that_nothing_was_left(
    surgery, checkpoint, tmp_path, monkeypatch
):
    def strike(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(staging, "sync_tree", strike)
    ended = surgery("compact", checkpoint, tmp_path / "new")
    assert ended.code == 130
    assert ended.err.endswith("interrupted; nothing was left behind\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_end_that_has_to_wait_for_what_is_in_work_is_announced(
    surgery, checkpoint, monkeypatch, number
):
    def busy(*_, **__):
        try:
            os.kill(os.getpid(), number)
            raise AssertionError("the signal was not raised as an exception")
        except (KeyboardInterrupt, signals.Terminated):
            while signal.getitimer(signal.ITIMER_REAL) != (0.0, 0.0):
                time.sleep(0.001)  # until the alarm, which may have been already
            raise

    monkeypatch.setattr(use_cases, "inspect", busy)
    monkeypatch.setattr(signals, "_PATIENCE_SECONDS", 0.01)
    ended = surgery("inspect", checkpoint)
    assert ended.code == 128 + number
    first, last = ended.err.splitlines()
    assert first == "stopping: what is in work now is finished first"
    assert last.endswith("; nothing was left behind")


def test_an_end_that_comes_at_once_is_not_announced_and_leaves_no_alarm(
    surgery, checkpoint, monkeypatch
):
    def struck(*_, **__):
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("the signal was not raised as an exception")

    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGALRM)
    monkeypatch.setattr(use_cases, "inspect", struck)
    monkeypatch.setattr(signals, "_PATIENCE_SECONDS", 300)  # a machine may do much else meanwhile
    ended = surgery("inspect", checkpoint)
    assert ended.code == 130
    assert ended.err == "interrupted; nothing was left behind\n"
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGALRM)) == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_second_signal_while_the_first_is_reported_is_passed_over(
    surgery, checkpoint, tmp_path, monkeypatch
):
    def strike(_):
        raise KeyboardInterrupt

    def struck_again():
        os.kill(os.getpid(), signal.SIGINT)
        return "nothing was left behind"

    monkeypatch.setattr(staging, "sync_tree", strike)
    monkeypatch.setattr(aftermath, "aftermath", struck_again)
    before = signal.getsignal(signal.SIGINT)

    ended = surgery("compact", checkpoint, tmp_path / "new")

    assert ended.code == 130
    assert ended.err.endswith("interrupted; nothing was left behind\n")
    assert signal.getsignal(signal.SIGINT) is before


MISSED = """
import signal, threading, time
from surgery_cli.cli import signals

def strike():
    time.sleep(0.2)
    signal.pthread_kill(threading.get_ident(), signal.{name})  # does not wake the main thread

signal.signal(signal.{name}, signal.SIG_DFL)  # `nohup` has SIGHUP ignored
with signals.caught(), signals.never_missed():
    threading.Thread(target=strike).start()
    try:
        threading.Event().wait()
    except (KeyboardInterrupt, signals.Terminated):
        print("obeyed")
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_that_does_not_wake_the_main_thread_is_obeyed(name):
    """As one does not that comes between Python's last look at signals and the wait itself."""
    command = [sys.executable, "-c", MISSED.format(name=name)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "obeyed\n"


@pytest.mark.parametrize("when", ["before it is looked for", "after that"])
@pytest.mark.parametrize("more", [(), ("--dry-run",)], ids=["", "preview"])
def test_before_a_run_has_looked_for_what_is_kept_it_says_nothing_of_that(
    surgery, checkpoint, tmp_path, monkeypatch, when, more
):
    """It said that nothing was left behind, beside what an earlier run had kept."""

    def strike(*_, **__):
        raise KeyboardInterrupt

    place = importlib.import_module(f"surgery_cli.surgery.{'plan' if more else 'apply'}")
    monkeypatch.setattr(aftermath, "sought", [])
    monkeypatch.setattr(place, {"after that": "check_target"}.get(when, "check_expected"), strike)
    words = ("rescale", checkpoint, tmp_path / "new", "params", "--by", "2", "--optimizer", "keep")
    ended = surgery(*words, "--resume", *more)
    assert ended.code == 130
    said = {
        "after that": "nothing was left behind",
        "before it is looked for": "this run has written nothing; what an earlier one may have kept is as it was",
    }
    assert ended.err.endswith(f"interrupted; {said[when]}\n")
    assert surgery(*words, *more).err.endswith("interrupted; nothing was left behind\n")
