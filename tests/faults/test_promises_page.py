"""The page of promises names tests that there are, commands that run, and the figures that were counted."""

import re
import shlex
import subprocess

import pytest

from docs.make_promises import DOCS, page, places_of_tests
from tests.faults.sections import SECTIONS
from tests.promises import PROMISES

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
