"""The pages on probes are run: a checkpoint is damaged as the first one says, and the commands print what is shown.

Numbers are compared to a hundredth: their last digits depend on the machine's instructions.
"""

import importlib.util
import re
import shlex
import shutil
from functools import partial

import jax
import numpy as np
import pytest

from surgery_cli.cli import main
from tests.pages.consoles import CONSOLE, REPOSITORY
from tests.probe.conftest import save

NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]\d+)?")
ROUNDING = re.compile(r"\d\.\d+e-0[5-9]|(?<=agree: )\S+|(?<=at most )\S+")


@pytest.fixture
def damaged(tmp_path):
    """A folder with the page's `train.py`, and a checkpoint in which one scale of one layer has become negative."""
    (script,) = re.findall(r"```python\n(.*?)```", page("finding-the-first-nan"), re.DOTALL)
    (tmp_path / "train.py").write_text(script)
    spec = importlib.util.spec_from_file_location("page_train", tmp_path / "train.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    fresh = module.Model().init(jax.random.key(0), np.ones((1, 16), np.float32))["params"]
    params = jax.tree.map(np.array, fresh)
    params["layers"]["norm"]["scale"][2, 5] = -0.25
    (tmp_path / "runs").mkdir()
    save(tmp_path / "runs" / "damaged", {"params": params})
    return tmp_path


def page(name):
    return (REPOSITORY / "docs" / f"{name}.md").read_text()


@pytest.fixture
def check(monkeypatch, capfd):
    """Run every command of a page in a folder, and hold what it prints against the page."""

    def run(command, folder):
        monkeypatch.chdir(folder)
        with pytest.raises(SystemExit):
            main.run(shlex.split(command)[1:])
        return "\n".join(capfd.readouterr())

    return partial(_check, run)


def _check(run, name, folder):
    blocks = CONSOLE.findall(page(name))
    assert blocks
    for command, shown in blocks:
        printed = run(command, folder)
        assert words(printed) == words(shown), command
        assert numbers(printed) == pytest.approx(numbers(shown), rel=1e-2, nan_ok=True), command


def words(text):
    return NUMBER.sub("#", ROUNDING.sub("…", text)).split()


def numbers(text):
    return [float(number) for number in NUMBER.findall(ROUNDING.sub("…", text))]


@pytest.mark.check_all
def test_the_page_on_the_first_nan_finds_it_in_a_checkpoint_damaged_so(check, damaged):
    check("finding-the-first-nan", damaged)


@pytest.mark.check_all
def test_the_page_on_proving_an_edit_shows_what_is_printed(check, tmp_path):
    shutil.copytree(REPOSITORY / "sample_checkpoints", tmp_path / "sample_checkpoints")
    plans = re.findall(r"```yaml\n(.*?)```", page("proving-an-edit"), re.DOTALL)
    for name, plan in zip(("calmer.yaml", "forgot.yaml"), plans, strict=True):
        (tmp_path / name).write_text(plan)

    check("proving-an-edit", tmp_path)
