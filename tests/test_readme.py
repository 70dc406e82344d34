"""The README's tour is run: each command prints exactly what the README shows, and ends as it says."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)
# seconds, digests, data files' names, and bytes that depend on the filesystem or on how well they were compressed
CHANGING = re.compile(
    r"\d+\.\d s$|sha256:[0-9a-f]{64}|(?<=/d/)[0-9a-f]{32}|(?<=linked )[\d.]+ \w+|(?<=copied )[\d.]+ \w+",
    re.MULTILINE,
)


def tour():
    """Every command of the README's console blocks with the output that is shown for it."""
    found = []
    for block in CONSOLE.findall((REPOSITORY / "README.md").read_text()):
        command, _, output = block.partition("\n")
        found.append((command.removeprefix("$ "), output.rstrip("\n")))
    return found


def run(command, folder):
    assert command.startswith("surgery ")
    arguments = shlex.split(command)[1:]
    done = subprocess.run(
        [sys.executable, "-m", "surgery_cli", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return (done.stdout + done.stderr).rstrip("\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tour")
    shutil.copytree(REPOSITORY / "sample_checkpoints", folder / "sample_checkpoints")
    (folder / "build").mkdir()  # as `make` leaves it; a preview says which directories it makes
    return folder


def test_the_tour_prints_what_the_readme_shows(folder):
    commands = tour()
    assert len(commands) >= 6
    for command, shown in commands:
        printed = run(command, folder)
        assert CHANGING.sub("…", printed) == CHANGING.sub("…", shown), command
