"""The page on the contract check is run: its script is written, and each command prints what the page shows."""

import re
import shutil

import pytest

from surgery_cli.cli import main
from tests.pages.consoles import CHANGING, CONSOLE, REPOSITORY, words_of

PAGE = REPOSITORY / "docs" / "contract-check.md"


def test_the_commands_of_the_page_print_what_it_shows(tmp_path, monkeypatch, capfd):
    text = PAGE.read_text()
    shutil.copytree(REPOSITORY / "sample_checkpoints", tmp_path / "sample_checkpoints")
    (script,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "sample_checkpoints" / "next.py").write_text(script)
    monkeypatch.chdir(tmp_path)
    blocks = CONSOLE.findall(text)
    assert len(blocks) == 4
    for command, shown in blocks:
        with pytest.raises(SystemExit):
            main.run(words_of(command))
        printed = "".join(capfd.readouterr()).rstrip("\n")
        assert CHANGING.sub("…", printed) == CHANGING.sub("…", shown.rstrip("\n")), command
    assert not (tmp_path / "out").exists()
