"""Files of two saves in one folder: what is restored is one of them, and nothing says which was meant."""

import shutil

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.operations.rescale import Rescale
from surgery_cli.planning import plan_of

SIZES = {"inline values": 8, "values in files": 4000}
PROCESS = "ocdbt.process_0/manifest.ocdbt"


@pytest.fixture(params=SIZES)
def runs(request, tmp_path):
    """Two saves of a tree, with values of one size and of others."""
    for step in (1, 2):
        tree = {
            name: jax.numpy.arange(SIZES[request.param], dtype="f4") * step + at
            for at, name in enumerate("abc")
        }
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(tmp_path / str(step), tree)
    return tmp_path


def findings(place):
    (row,) = surgery.doctor(str(place), settled_seconds=0).places
    found = surgery.verify(str(place)).findings
    assert (row.state == "whole") == (not found) == (not surgery.seal(str(place)).notes)
    return [one.path for one in found]


def mixed(runs, *kept):
    """Step 2 after a copy of step 1 over it that left the files ``kept``."""
    place = shutil.copytree(runs / "2", runs / "mixed")
    shutil.copytree(runs / "1", place, dirs_exist_ok=True)
    for file in kept:
        shutil.copy(runs / "2" / file, place / file)
    return place


@pytest.mark.parametrize("last", [PROCESS, "manifest.ocdbt"])
def test_a_manifest_of_another_save_is_found(runs, last):
    place = mixed(runs, last)
    with ocp.StandardCheckpointer() as checkpointer:
        step = 2 if last == "manifest.ocdbt" else 1
        np.testing.assert_array_equal(checkpointer.restore(place)["a"][1], step)
    assert findings(place) == [PROCESS]


def test_what_is_dead_beside_a_save_is_no_finding(runs):
    assert findings(mixed(runs)) == []


def test_a_manifest_whose_values_are_gone_is_no_finding(runs):
    place = shutil.copytree(runs / "2", runs / "without")
    shutil.copy(runs / "1" / PROCESS, place / PROCESS)
    assert findings(place) == []


def test_what_an_edit_leaves_is_no_finding(runs):
    surgery.apply(str(runs / "1"), str(runs / "new"), plan_of([Rescale(at="*", by=2.0)]))
    assert findings(runs / "new") == []
