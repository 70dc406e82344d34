"""The README's uses are run: each command prints exactly what the README shows, and ends as it says."""

import shutil
import subprocess
import sys

import pytest

from tests.pages.consoles import REPOSITORY, hold


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(REPOSITORY / "sample_checkpoints", tmp_path / "sample_checkpoints")
    (tmp_path / "build").mkdir()  # as `make` leaves it; a preview says which directories it makes
    return tmp_path


def test_the_uses_print_what_the_readme_shows(folder):
    def run(words):
        done = subprocess.run(
            [sys.executable, "-m", "surgery_cli", *words],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout + done.stderr

    assert len(hold(REPOSITORY / "README.md", run)) >= 3
