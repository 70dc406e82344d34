"""The page of promises names tests that there are, commands that run, and the figures that were counted."""

import re
import shlex
import subprocess

import pytest

from docs import make_promises
from docs.make_promises import DOCS, counts_of, page, places_of_tests
from tests.faults.sections import SECTIONS
from tests.promises import PROMISES, Promise

EVERY = [promise for made in PROMISES.values() for promise in made]
COMMANDS = sorted({promise.command for promise in EVERY} - {""})


def test_the_page_is_up_to_date():
    assert (DOCS / "promises.md").read_text(encoding="utf-8") == page()


def test_every_promise_is_held_by_tests_that_there_are():
    assert all(promise.tests for promise in EVERY)
    assert {test for one in EVERY for test in one.tests} <= {*places_of_tests()}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_runs(command):
    words = shlex.split(command)
    if words[0] == "make":
        dry = subprocess.run(
            ["make", "-n", *words[1:]], cwd=DOCS.parent, capture_output=True, text=True, check=False
        )
        assert dry.returncode == 0, dry.stderr
        return
    assert words[:3] == ["python", "-m", "tests.faults"]
    assert set(words[words.index("--sections") + 1].split(",")) <= set(SECTIONS)
    options = set(re.findall(r"--[a-z]+", command))
    from tests.faults.__main__ import _asked

    assert {f"--{name}" for name in vars(_asked(words[3:]))} >= options


def test_what_was_counted_stands_beside_the_promise_that_it_would_break(monkeypatch):
    """Of the sections that the command names alone; and a machine that counts has something to count."""
    known = {
        "faults": {
            "sections": {"calls": {"trials": 1000, "torn": 1}, "power": {"trials": 2, "torn": 2},
                         "signals": {"trials": 5, "hang": 4},
                         "flips": {"trials": 9, "flip": 3, "state sealed: found": 4, "state sealed: silent": 1,
                                   "state open: found": 2, "state open: silent, in values": 2}}
        },
        "fuzz": {"kinds": {"npz": {"inputs": 7}, "plans": {"inputs": 8, "bug": 1}}},
        "rescues": {"layouts": {"killed-0": {"tries": 3}, "v1": {"tries": 4, "wrong values": 5}}},
    }  # fmt: skip
    monkeypatch.setattr(make_promises, "counted", known.__getitem__)

    def counted(of, command, *breaks):
        return counts_of(Promise("", (), command, breaks, of))

    strikes = "python -m tests.faults --hours 1 --sections "
    assert counted("", strikes + "calls,power", "torn", "hang") == "1,002 trials: torn 3, hangs 0"
    assert counted("", strikes + "signals", "torn", "hang") == "5 trials: torn 0, hangs 4"
    assert counted("sealed", strikes + "flips", "flip") == "5 trials: unseen flips 1"
    assert counted("open", strikes + "flips", "flip") == "4 trials: unseen flips 2"
    assert counted("", strikes + "filesystems", "torn") == counted("", strikes + "calls") == ""
    assert counted("", "make fuzz N=9", "bug", "time") == "15 inputs: tracebacks 1, over 20 s 0"
    assert counted("", "make rescues", "wrong values") == "7 tries: wrong values 5"
    assert counted("killed", "make rescues", "wrong values") == "3 tries: wrong values 0"


def test_every_command_that_counts_says_what_would_break_its_promise():
    """But for those that measure, or end with an error, and leave no counts."""
    silent = {one.command for one in EVERY if one.command and not one.breaks}
    assert {command for command in silent if "--rows" not in command} == {
        "make bench",
        "make oracle",
    }
