"""Slow tests take turns: of those that take 0.3 seconds or more, each commit runs an eighth.

Which of them, its hash decides, so that the same commit always runs the same tests, here and elsewhere. Where tests are
named, and in ``make check-all``, all run. ``python -m tests.turns JUNIT.xml`` writes ``slow.txt`` anew from what
``make test ARGS="--turn all --junitxml=JUNIT.xml"`` measured.
"""

import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from xml.etree import ElementTree as ET
from zlib import crc32

import pytest

TURNS = 8
SLOW_SECONDS = 0.3
TABLE = Path(__file__).with_name("slow.txt")


def slow_tests() -> set[str]:
    """The tests of the table, as ``path::name``, whatever their cases."""
    return {line.split()[1] for line in TABLE.read_text("utf-8").splitlines()}


def turn_of_commit() -> int | None:
    """Whose turn it is, or none where there is no commit to tell."""
    try:
        told = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=TABLE.parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return int(told.stdout, 16) % TURNS


def resolved(given: str | None, config: pytest.Config) -> str:
    """``all``, or the number of a turn: as it was given, or as the commit has it where no tests were named."""
    is_whole_suite = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    if given is not None or not is_whole_suite or config.getoption("every_combination"):
        return given or "all"
    turn = turn_of_commit()
    return "all" if turn is None else str(turn)


def take_turns(config: pytest.Config, items: list[pytest.Item], turn: int) -> None:
    """Deselect the slow tests whose turn it is not."""
    slow = slow_tests()
    chosen, left_out = [], []
    for item in items:
        waits = item.nodeid.split("[")[0] in slow and crc32(item.nodeid.encode()) % TURNS != turn
        (left_out if waits else chosen).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
    items[:] = chosen


def table_of(junit: Path) -> str:
    """A line for each slow test: the seconds that its cases take in the middle, and where it stands."""
    seconds = defaultdict(list)
    for case in ET.parse(junit).iter("testcase"):
        file = case.attrib["classname"].replace(".", "/") + ".py"
        test = case.attrib["name"].split("[")[0]
        seconds[f"{file}::{test}"].append(float(case.attrib["time"]))
    slow = {test: taken for test, each in seconds.items() if (taken := fmean(each)) >= SLOW_SECONDS}
    return "".join(f"{slow[test]:.1f} {test}\n" for test in sorted(slow))


if __name__ == "__main__":
    TABLE.write_text(table_of(Path(sys.argv[1])), "utf-8")
