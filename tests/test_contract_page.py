"""The page on the contract check is run: its script is written, and each command prints what the page shows."""

import re
import shutil

from test_readme import CHANGING, CONSOLE, REPOSITORY, run

PAGE = REPOSITORY / "docs" / "contract-check.md"


def test_the_commands_of_the_page_print_what_it_shows(tmp_path):
    text = PAGE.read_text()
    shutil.copytree(REPOSITORY / "sample_checkpoints", tmp_path / "sample_checkpoints")
    (script,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "sample_checkpoints" / "next.py").write_text(script)
    blocks = CONSOLE.findall(text)
    assert len(blocks) == 4
    for block in blocks:
        command, _, shown = block.partition("\n")
        printed = run(command.removeprefix("$ "), tmp_path)
        assert CHANGING.sub("…", printed) == CHANGING.sub("…", shown.rstrip("\n")), command
    assert not (tmp_path / "out").exists()
