"""A fixed sample of what `make soak` does for hours: whatever strikes a run, the destination is old, new or absent."""

import tempfile
from pathlib import Path
from random import Random

import pytest

from tests.faults.commands import COMPILER, Commands
from tests.faults.machine import Case
from tests.faults.rows import ROWS
from tests.faults.sections import SECTIONS

MEMORY = Path("/dev/shm")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="the shim needs a C compiler")
TRIALS = {"calls": 2, "signals": 1}
"""How many of a section a row gets; `make soak` tries all."""
CUT = ("rescale", "force-no-exchange", "seal", "msgpack")
"""Rows of which the power is cut after each call."""


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    with Commands(tmp_path_factory.mktemp("shim")) as started:
        yield started


@pytest.fixture
def folder(tmp_path):
    """In memory where that can be: what is synced again and again need not last."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else tmp_path) as name:
        yield Path(name)


@pytest.mark.parametrize("row", ROWS)
def test_what_strikes_a_run_leaves_the_old_or_the_new_one_and_what_is_said_is_true(
    row: str, commands: Commands, folder: Path
) -> None:
    case = Case(ROWS[row], folder, commands)
    chance = Random(row)
    for section, count in {**TRIALS, "power": int(row in CUT)}.items():
        for number in range(count):
            words = SECTIONS[section].draw(case, chance)
            for verdict in SECTIONS[section].strike(case, words, again=number == 0):
                assert not verdict.complaints, (section, words, verdict)
