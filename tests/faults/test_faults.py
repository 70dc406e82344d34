"""A fixed sample of what `make soak` does for hours: whatever strikes a run, the destination is old, new or absent."""

from pathlib import Path
from random import Random

import pytest

from tests.faults.commands import COMPILER, Commands
from tests.faults.machine import Case
from tests.faults.rows import ROWS
from tests.faults.sections import SECTIONS

pytestmark = pytest.mark.skipif(COMPILER is None, reason="the shim needs a C compiler")
TRIALS = {"calls": 2, "signals": 1, "power": 1}
"""How many of a section a row gets; `make soak` tries all."""


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    with Commands(tmp_path_factory.mktemp("shim")) as started:
        yield started


@pytest.mark.parametrize("row", ROWS)
def test_what_strikes_a_run_leaves_the_old_or_the_new_one_and_what_is_said_is_true(
    row: str, commands: Commands, tmp_path: Path
) -> None:
    case = Case(ROWS[row], tmp_path, commands)
    chance = Random(row)
    for section, count in TRIALS.items():
        for number in range(count):
            words = SECTIONS[section].draw(case, chance)
            for verdict in SECTIONS[section].strike(case, words, again=number == 0):
                assert not verdict.complaints, (section, words, verdict)
