"""An item of which nothing is left is no leaf: whatever looks at the step says the same of it."""

from __future__ import annotations

import shutil

import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery as library
from tests.cli.conftest import surgery

__all__ = ["surgery"]

STATE = {f"w{number}": np.full(3, number, np.float32) for number in range(16)}
EMA = {f"w{number}": np.full(3, -number, np.float32) for number in range(4)}


@pytest.fixture
def run(tmp_path):
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        for number in (10, 20, 30):
            items = {"state": ocp.args.StandardSave(STATE), "ema": ocp.args.StandardSave(EMA)}
            items["about"] = ocp.args.JsonSave({"a": 1})
            manager.save(number, args=ocp.args.Composite(**items))
        manager.wait_until_finished()
    return tmp_path / "run"


def _emptied(folder):
    shutil.rmtree(folder)
    folder.mkdir()


def _without_metadata_and_manifests(folder):
    for file in [file for file in folder.rglob("*") if file.is_file()]:
        if file.parent.name == "d":
            file.write_bytes(b"nothing")
        else:
            file.unlink()


DAMAGE = {"emptied": _emptied, "data alone": _without_metadata_and_manifests}


def _said(text):
    """What stands in one line, whatever the width."""
    return " ".join(text.split())


@pytest.mark.parametrize("beside", ["steps", "none"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_inspect_and_rescue_say_the_same_of_an_item_that_is_lost(surgery, run, damage, beside):
    DAMAGE[damage](run / "30" / "state")
    if beside == "none":
        shutil.rmtree(run / "10")
        shutil.rmtree(run / "20")
    many = "16 leaves in step 20" if beside == "steps" else "how many leaves it had is not known"
    lost = f"'state' ({many}) is lost as a whole"

    looked = surgery("inspect", run)
    assert looked.code == 3
    assert f"would find 4 of 4 leaves, and {lost}" in _said(looked.err)

    found = surgery("rescue", run / "30")
    assert found.code == 1
    assert f"4 of 4 leaves whole, 0 partly, 0 lost; {lost}" in _said(found.out)

    refused = surgery("rescue", run / "30", run.parent / "new")
    assert refused.code == 3
    assert f"4 of 4 leaves in '{run / '30'}' are whole, and {lost}" in _said(refused.err)

    told = library.rescue(str(run / "30"))
    assert (told.whole, told.lost, len(told.leaves)) == (4, 0, 4)
    (item,) = told.lost_items
    assert (item.name, item.leaves) == ("state", 16 if beside == "steps" else None)
    assert not told.is_whole


def test_what_is_no_tree_had_no_leaves(surgery, run):
    _emptied(run / "30" / "about")
    found = surgery("rescue", run / "30")
    assert "20 of 20 leaves whole, 0 partly, 0 lost; 'about' is lost as a whole" in _said(found.out)


def test_a_seal_tells_how_many_leaves_an_item_had(surgery, run):
    assert surgery("seal", f"{run}@30").code == 0
    shutil.rmtree(run / "10")
    shutil.rmtree(run / "20")
    _emptied(run / "30" / "state")
    told = surgery("rescue", run / "30")
    assert "'state' (16 leaves in `surgery.json`) is lost as a whole" in _said(told.out)


def test_a_leaf_and_an_item_that_are_lost_are_told_apart(surgery, run):
    _emptied(run / "30" / "state")
    metadata = run / "30" / "ema" / "_METADATA"
    assert metadata.exists()
    for folder in ("d", "ocdbt.process_0"):
        shutil.rmtree(run / "30" / "ema" / folder, ignore_errors=True)
    (run / "30" / "ema" / "manifest.ocdbt").unlink()
    told = library.rescue(str(run / "30"))
    assert (told.whole, told.lost, [one.name for one in told.lost_items]) == (0, 4, ["state"])
