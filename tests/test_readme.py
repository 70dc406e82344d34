"""The README's uses are run: each command prints exactly what the README shows, and ends as it says."""

import re
import shutil
import subprocess
import sys

import pytest

from tests.pages.consoles import REPOSITORY, hold

README = REPOSITORY / "README.md"


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(REPOSITORY / "sample_checkpoints", tmp_path / "sample_checkpoints")
    (tmp_path / "build").mkdir()  # as `make` leaves it; a preview says which directories it makes
    return tmp_path


def test_the_uses_print_what_the_readme_shows_and_end_as_it_says(folder):
    text = README.read_text(encoding="utf-8")
    for name, policy in re.findall(r"```yaml\n(?=# (\S+)\n)(.*?)```", text, re.DOTALL):
        (folder / name).write_text(policy)
    codes = []

    def run(words):
        done = subprocess.run(
            [sys.executable, "-m", "surgery_cli", *words],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        codes.append(done.returncode)
        return done.stdout + done.stderr

    shown = hold(README, run)
    said = [re.search(r"  # exit code (\d+)$", line) for line in shown]
    assert codes == [int(found[1]) if found else 0 for found in said]
    assert {0, 1} == set(codes)
