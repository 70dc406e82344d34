"""How the process ends: at once, with all that it printed, unless something wants to be closed."""

import subprocess
import sys

import pytest

SCRIPT = """
import atexit, sys, threading
from surgery_cli.cli.process import leave

atexit.register(print, "tidied up")
{before}
sys.stdout.write("x" * 100_000 + " all printed ")
leave(3)
"""


@pytest.mark.parametrize(
    ("before", "is_tidied"),
    [
        ("", False),
        ("sys.modules['jax'] = sys", True),
        ("threading.Thread(target=threading.main_thread().join).start()", True),
        ("threading.Thread(target=threading.main_thread().join, daemon=True).start()", False),
    ],
    ids=["alone", "with JAX", "with a thread", "with a thread that nobody waits for"],
)
def test_all_that_was_printed_arrives_and_the_code_is_kept(before: str, is_tidied: bool) -> None:
    command = [sys.executable, "-c", SCRIPT.format(before=before)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "x" * 100_000 + " all printed ")
    assert ("tidied up" in done.stderr) is is_tidied


def test_a_long_answer_reaches_a_pipe_whole() -> None:
    command = [sys.executable, "-m", "surgery_cli", "schema"]
    through_pipe = subprocess.run(command, capture_output=True, check=True).stdout
    assert through_pipe.endswith(b"}\n")
    assert len(through_pipe) > 10_000
