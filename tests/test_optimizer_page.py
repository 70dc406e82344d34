"""The page on another optimizer is run: its script saves, its plan is applied, and the old moments are there."""

import re
import shutil

import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli.cli import main
from surgery_cli.script.user_code import load_object
from tests.pages.consoles import CONSOLE, REPOSITORY, words_of

PAGE = REPOSITORY / "docs" / "changing-the-optimizer.md"


def test_the_plan_of_the_page_takes_the_new_state_in_and_keeps_the_old_moments(
    tmp_path, monkeypatch, capfd
):
    text = PAGE.read_text()
    samples = tmp_path / "sample_checkpoints"
    shutil.copytree(REPOSITORY / "sample_checkpoints", samples)
    (script,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (samples / "tuned.py").write_text(script)
    (plan,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "tuned.yaml").write_text(plan)
    monkeypatch.chdir(tmp_path)
    user = load_object("sample_checkpoints/tuned.py:save_fresh")
    user.run(user.value, tmp_path / "fresh")
    capfd.readouterr()

    blocks = CONSOLE.findall(text)
    assert len(blocks) == 2
    for command, shown in blocks:
        with pytest.raises(SystemExit):
            main.run(words_of(command))
        printed = "".join(capfd.readouterr()).rstrip("\n")
        assert printed == shown.rstrip("\n"), command

    with ocp.PyTreeCheckpointer() as checkpointer:
        old, new = (
            checkpointer.restore(path) for path in (samples / "digits_standard", tmp_path / "out")
        )
    before, after = old["opt_state"][0], new["opt_state"]["inner_state"][0]
    assert after["count"] == 500
    for moment in ("mu", "nu"):
        kernel = after[moment]["Dense_1"]["kernel"]
        assert np.array_equal(kernel, before[moment]["Dense_1"]["kernel"])
    assert new["opt_state"]["hyperparams"]["learning_rate"] == np.float32(1e-3)
