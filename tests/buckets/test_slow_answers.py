"""Who waits for a service that gives nothing is told so, and which address it is."""

import re
import subprocess
import sys
import threading

import pytest

from tests.buckets.checkpoints import saved, uploaded

COMMAND = """
import sys
from surgery_cli.inputs import slow_answers
slow_answers.PATIENCE_SECONDS = {patience}
sys.argv = ["surgery", "inspect", {place!r}]
from surgery_cli.__main__ import main
main()
"""


def looked(place, patience):
    code = COMMAND.format(place=place, patience=patience)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("patience", [0.2, 20.0])
def test_what_is_waited_for_is_said_after_a_while(service, tmp_path, patience):
    place = uploaded(service, saved(tmp_path / "ck"), f"{service.root}/ck")
    service.faults.latency = 1.0
    ended = looked(place, patience)
    assert ended.returncode == 0
    said = re.findall(r"note: (\S+) has given nothing for \d+ s; it is still asked\n", ended.stderr)
    assert bool(said) == (patience == 0.2)
    assert all(one.startswith(service.root) for one in said)


def test_a_library_says_nothing_and_starts_no_thread(service, tmp_path):
    from surgery_cli import surgery

    place = uploaded(service, saved(tmp_path / "ck"), f"{service.root}/ck")
    surgery.inspect(place)
    assert not any(thread.name == "surgery-waiting" for thread in threading.enumerate())
