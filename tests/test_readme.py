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
    for made in re.findall(r"^mkdir -p (\w+)", README.read_text(encoding="utf-8"), re.MULTILINE):
        (tmp_path / made).mkdir()  # a preview says which directories it makes
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


EXTRAS = {"sklearn": "demo", "matplotlib": "plot"}
"""The extra of the package that brings each of what the scripts of the samples import."""


def extras_of(script):
    """The extras that a script needs, with what it imports from the folder it is in."""
    names = re.findall(r"^\s*(?:from|import) (\w+)", script.read_text(), re.MULTILINE)
    beside = {script.with_name(f"{name}.py") for name in names} - {script}
    found = {EXTRAS[name] for name in names if name in EXTRAS}
    return found.union(*(extras_of(other) for other in beside if other.is_file()))


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_a_page_that_says_to_run_a_script_says_how_to_install_what_that_imports(page):
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    scripts = set(re.findall(r"python (sample_checkpoints/\w+\.py)", text))
    assert scripts
    installed = {
        name for names in re.findall(r"'\.\[([\w,]+)\]'", text) for name in names.split(",")
    }
    for script in scripts:
        assert extras_of(REPOSITORY / script) <= installed
