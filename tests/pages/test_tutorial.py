"""The tutorial is run from begin to end: each command prints what the page shows."""

import contextlib
import io
import shutil

import pytest

from surgery_cli.cli.main import run
from tests.pages.consoles import REPOSITORY, hold
from tests.pages.recipes import BLOCK

PAGE = REPOSITORY / "docs" / "tutorial.md"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A clone, as the page has it, with the files that it tells the reader to save."""
    shutil.copytree(REPOSITORY / "sample_checkpoints", tmp_path / "sample_checkpoints")
    (tmp_path / "build").mkdir()
    for language, text in BLOCK.findall(PAGE.read_text()):
        if language == "yaml":
            (tmp_path / text.partition("\n")[0].removeprefix("# ")).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    return tmp_path


def printed(words):
    out = io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(out),
        pytest.raises(SystemExit),
    ):
        run(words)
    return out.getvalue()


def test_the_tutorial_prints_what_it_shows(folder):
    def step(words):
        if words[:2] == ["apply", "build/half"]:
            (folder / "undo.yaml").write_text(printed(["plan", "build/half", "--inverse"]))
        return printed(words)

    assert len(hold(PAGE, step)) >= 10
