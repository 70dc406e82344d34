"""A fixed sample of what `make soak` does for hours: whatever strikes a run, the destination is old, new or absent."""

import tempfile
from pathlib import Path
from random import Random

import pytest

from tests.faults import calls, filesystems
from tests.faults.commands import COMPILER, Commands
from tests.faults.machine import Case
from tests.faults.rows import ROWS
from tests.faults.sections import SECTIONS

MEMORY = Path("/dev/shm")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="the shim needs a C compiler")
TRIALS = {"calls": 2, "signals": 1}
"""How many of a section a row gets; `make soak` tries all."""
WHILE_NAMED, WHILE_EXCHANGED = 6, 24
"""How many of the last calls give the result its name, and of those that put away what stood there, too."""
PLACED = ("rescale", "seal", "rescue", "force", "as-step")
"""Of these, one for each place."""
CUT = ("rescale", "force-no-exchange", "seal", "msgpack")
"""Rows of which the power is cut after each call."""


FOUND = [("meanwhile", "rescue", "moved 150 28"), ("calls", "force-no-exchange", "EIO+ 140")]
"""What soaks have found, as they say it."""


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    with Commands(tmp_path_factory.mktemp("shim")) as started:
        yield started


@pytest.fixture
def folder(tmp_path):
    """In memory where that can be: what is synced again and again need not last."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else tmp_path) as name:
        yield Path(name)


@pytest.mark.sampled(8)
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


@pytest.mark.check_all
@pytest.mark.parametrize("row", [name for name, row in ROWS.items() if row.deny])
def test_where_names_cannot_be_exchanged_whatever_fails_while_one_is_given_is_told(
    row: str, commands: Commands, folder: Path
) -> None:
    case = Case(ROWS[row], folder, commands)
    for fault in ("EIO", "EIO+"):
        last = case.counted(calls.FAULTS[fault])
        first = last - (WHILE_EXCHANGED if case.row.stands else WHILE_NAMED)
        for at in range(first, last + 1):
            for verdict in calls.strike(case, f"{fault} {at}", again=False):
                assert not verdict.complaints, (fault, at, verdict)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("deed", filesystems.DEEDS)
def test_wherever_a_run_reads_and_writes_it_is_done_or_refused_as_that_place_asks_for(
    deed: str, commands: Commands, folder: Path
) -> None:
    if why := filesystems.why_not_done(deed):
        pytest.skip(why)
    folder.chmod(0o755)
    row = Random(deed).choice(PLACED)
    case = Case(ROWS[row], folder, commands)
    words = f"{deed} {Random(deed).randint(1, 40)}"
    for verdict in filesystems.strike(case, words):
        assert not verdict.complaints, (row, words, verdict)


@pytest.mark.parametrize("row", ["rescale", "resume"])
def test_a_staging_place_tells_whose_it_was_until_it_is_gone(
    row: str, commands: Commands, folder: Path
) -> None:
    case = Case(ROWS[row], folder, commands)
    last = case.counted(calls.FAULTS["KILL"])
    for at in range(last - 3, last + 1):
        for verdict in calls.strike(case, f"KILL {at}"):
            assert not verdict.complaints, (at, verdict)


@pytest.mark.parametrize(("section", "row", "words"), FOUND)
def test_what_a_soak_found_is_not_found_again(
    section: str, row: str, words: str, commands: Commands, folder: Path
) -> None:
    for verdict in SECTIONS[section].strike(Case(ROWS[row], folder, commands), words):
        assert not verdict.complaints, verdict
