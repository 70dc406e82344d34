"""A slash behind `RUN@STEP`, as shells put it behind the name of a folder, changes nothing."""

from __future__ import annotations

import shutil

import pytest

from tests.cli.conftest import SAMPLES

COMMANDS = {
    "inspect": ("inspect", "STEP"),
    "diff": ("diff", "RUN", "STEP"),
    "verify": ("verify", "STEP"),
    "verify like": ("verify", "RUN", "--like", "STEP"),
    "doctor": ("doctor", "STEP"),
    "log": ("log", "STEP"),
    "rescue": ("rescue", "STEP"),
    "edit": ("rescale", "STEP", "NEW", "params/Dense_1/kernel", "--by", "2", "--dry-run"),
    "donor": ("replace", "RUN", "NEW", "params", "--with", "STEP", "--dry-run"),
}


@pytest.mark.parametrize("step", ["250", "latest"])
@pytest.mark.parametrize("command", COMMANDS)
def test_it_is_that_step(surgery, tmp_path, command, step):
    run = shutil.copytree(SAMPLES / "digits_manager", tmp_path / "run")
    told = []
    for behind in ("", "/", "//"):
        places = {"STEP": f"{run}@{step}{behind}", "RUN": run, "NEW": tmp_path / "new"}
        done = surgery(*(places.get(word, word) for word in COMMANDS[command]))
        assert "names no step" not in done.err
        told.append((done.code, done.out.replace(f"@{step}{behind}", f"@{step}")))
    assert told[0][0] in (0, 1), done.err
    assert told[1][0] == told[2][0] == told[0][0]
    assert told[1][1].splitlines()[0] == told[0][1].splitlines()[0]


def test_it_may_stand_behind_a_step_that_is_asked_for_twice(surgery, tmp_path):
    refused = surgery("inspect", f"{SAMPLES / 'digits_manager'}@250/", "--step", "500")
    assert refused.code == 2
    assert "@500`" in refused.err
