"""What stands for a lost structure: given to the item that it is like, and never to another."""

import shutil

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import PlanError

PARAMS = {"w": np.ones((2, 3), "f4"), "layers": [np.zeros(2, "f4"), np.ones(2, "f4")], "none": None}
OPTIMIZER = {"mu": {"w": np.ones((2, 3), "f4")}, "empty": {}}
TARGETS = {"params": PARAMS, "optimizer": OPTIMIZER}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    with ocp.CheckpointManager(folder / "run") as manager:
        items = {name: ocp.args.PyTreeSave(tree) for name, tree in TARGETS.items()}
        manager.save(1, args=ocp.args.Composite(**items))
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(folder / "params", PARAMS)
        checkpointer.save(folder / "other", {"b": np.ones(2, "f4")})
    return folder


@pytest.fixture
def broken(saved, tmp_path):
    step = shutil.copytree(saved / "run/1", tmp_path / "step")
    for name in TARGETS:
        (step / name / "_METADATA").unlink()
    return step


def _restored(step, item):
    with ocp.PyTreeCheckpointer() as checkpointer:
        return jax.tree.structure(checkpointer.restore(step / item), is_leaf=lambda x: x is None)


def test_a_tree_alone_is_like_the_item_that_has_its_leaves(saved, broken, tmp_path):
    rescued = surgery.rescue(
        str(broken), str(tmp_path / "new"), like=str(saved / "params"), allow_partial=True
    )
    assert (rescued.whole, rescued.lost) == (4 + 1, 0)  # `none` is a leaf; `empty` nobody knows
    paths = [row.path for row in rescued.leaves]
    assert sorted(paths) == [
        *["optimizer/mu/w", "params/layers/0", "params/layers/1", "params/none", "params/w"]
    ]
    assert _restored(tmp_path / "new", "params") == _restored(saved / "run/1", "params")


@pytest.mark.parametrize("like", ["run", "run/1"])
def test_items_of_the_same_names_are_like_each_other(saved, broken, tmp_path, like):
    rescued = surgery.rescue(str(broken), str(tmp_path / "new"), like=str(saved / like))
    assert not rescued.structure_lacks
    for name in TARGETS:
        assert _restored(tmp_path / "new", name) == _restored(saved / "run/1", name)


def test_what_is_like_none_is_refused_with_their_names(saved, broken, tmp_path):
    with pytest.raises(PlanError, match="is like none of 'optimizer' and 'params'"):
        surgery.rescue(str(broken), str(tmp_path / "new"), like=str(saved / "other"))
    assert not (tmp_path / "new").exists()


def test_of_an_item_alone_whatever_is_named_gives_the_structure(saved, broken):
    rescued = surgery.rescue(str(broken / "params"), like=str(saved / "params"))
    assert not rescued.structure_lacks


def test_text_is_counted_as_it_is_there(tmp_path):
    """By a look from metadata alone as well as by the rescue."""
    tree = {"w": np.ones(3, "f4"), "name": "adam", "more": {"name": "x"}}
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        manager.save(1, args=ocp.args.PyTreeSave(tree))
    step = tmp_path / "run/1"
    (step / "default/manifest.ocdbt").unlink()
    for file, counts in ((None, (3, 3)), ("default/_strings.json", (1, 3))):
        if file is not None:
            (step / file).unlink()
        (row,) = surgery.doctor(str(step), settled_seconds=0).places
        found = surgery.rescue(str(step))
        assert (row.whole_leaves, row.leaves) == (found.whole, len(found.leaves)) == counts
