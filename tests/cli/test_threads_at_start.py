"""What NumPy starts beside the program does not work while there is nothing to multiply."""

import os
import subprocess
import sys

import pytest

LOADED = """
import os, pathlib, time
import surgery_cli.__main__ as program
from surgery_cli.cli import main

def load():
    assert "numpy" not in __import__("sys").modules
    import numpy
    time.sleep(0.3)  # they spin for a tenth of a second by default
    spent = 0
    for thread in pathlib.Path("/proc/self/task").iterdir():
        if int(thread.name) != os.getpid():
            spent += sum(map(int, (thread / "stat").read_text().rsplit(")")[-1].split()[11:13]))
    print(spent, os.environ["OPENBLAS_THREAD_TIMEOUT"])

main.run = load
program.main()
"""


def start(**said: str) -> tuple[int, str]:
    """The ticks of the processor's time that the other threads took, and what OpenBLAS was told."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED],
        env=os.environ | said,
        capture_output=True,
        text=True,
        check=True,
    )
    ticks, told = done.stdout.split()
    return int(ticks), told


@pytest.mark.skipif(sys.platform != "linux", reason="what threads take is told by Linux")
def test_threads_of_numpy_that_have_nothing_to_do_sleep() -> None:
    ticks, told = start()
    assert ticks <= 2  # ten of each by default
    assert told == "4"


def test_what_the_environment_says_of_them_stands() -> None:
    assert start(OPENBLAS_THREAD_TIMEOUT="20")[1] == "20"
