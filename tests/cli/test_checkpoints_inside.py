"""What lies inside of a checkpoint and is none of its parts: `--force` does not take it along; no step is an item."""

import json
import shutil
from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp
import pytest
from flax import serialization

from tests.buckets.checkpoints import uploaded

TREE = {"params": {"w": np.ones((4, 4), np.float32)}}
EDIT = ("params/w", "--by", "0.5", "--force")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree, and a run of two steps with two trees and a JSON item."""
    folder = tmp_path_factory.mktemp("made")
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(folder / "tree", TREE)
    with ocp.CheckpointManager(folder / "run") as manager:
        for step in (100, 200):
            items = {
                "state": ocp.args.StandardSave(TREE),
                "ema": ocp.args.StandardSave(TREE),
                "cursor": ocp.args.JsonSave({"line": 3}),
            }
            manager.save(step, args=ocp.args.Composite(**items))
    (shutil.copytree(folder / "tree", folder / "bare") / "_METADATA").unlink()
    with ocp.PyTreeCheckpointer(use_ocdbt=False) as checkpointer:
        checkpointer.save(folder / "files", TREE)
    for name in ("_METADATA", "_CHECKPOINT_METADATA"):
        (folder / "files" / name).unlink()
    (folder / "flax").mkdir()
    (folder / "flax" / "checkpoint_5").write_bytes(serialization.to_bytes(TREE))
    return folder


INSIDE = {
    "a tree in a tree": ("tree", [("tree", "sub")], ["sub"]),
    "a tree deep in a tree": ("tree", [("tree", "exp/best")], ["exp/best"]),
    "a run in a tree": ("tree", [("run", "exp/run")], ["exp/run/100", "exp/run/200"]),
    "a tree in a run": ("run", [("tree", "evals/best")], ["evals/best"]),
    "a tree in the item of a step": ("run", [("tree", "200/state/sub")], ["200/state/sub"]),
    "a step in a step": ("run", [("run/100", "200/old")], ["200/old"]),
    "a tree in a folder of a step": ("run", [("tree", "200/x/best")], ["200/x/best"]),
    "a tree in a step alone": ("run/100", [("tree", "x/best")], ["x/best"]),
    "a tree without _METADATA": ("tree", [("bare", "kept")], ["kept"]),
    "a tree of files": ("tree", [("files", "kept")], ["kept"]),
    "a file of Flax": ("tree", [("flax", "kept")], ["kept/checkpoint_5"]),
    "a tree that was set aside": ("tree", [("tree", "ft.surgery-old")], ["ft.surgery-old"]),
    "a step that was set aside": ("run", [("run/200", "100.surgery-old")], ["100.surgery-old"]),
    "several": ("run", [("tree", "a/b"), ("tree", "100/c/d")], ["100/c/d", "a/b"]),
}


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("look", [["--dry-run"], ["-q"]], ids=["preview", "run"])
@pytest.mark.parametrize("case", INSIDE)
def test_force_removes_no_checkpoint_that_is_no_part_of_what_it_replaces(
    surgery, made, tmp_path, case, look
):
    what, more, lost = INSIDE[case]
    target = shutil.copytree(made / what, tmp_path / "target")
    for source, place in more:
        shutil.copytree(made / source, target / place)
    before = files(target)
    refused = surgery("rescale", made / "tree", target, *EDIT, *look)
    assert refused.code == 2
    named = "', '".join(str(target / place) for place in lost)
    said = " ".join(refused.err.split())
    assert said.startswith(f"error: `--force` would remove '{named}' with '{target}'")
    assert files(target) == before

    for _, place in more:
        shutil.rmtree(target / place)
    assert surgery("rescale", made / "tree", target, *EDIT, *look).code == 0


@pytest.mark.parametrize(("what", "place"), [("tree", "exp/best"), ("run", "200/x/best")])
def test_nor_in_a_bucket(surgery, made, tmp_path, service, what, place):
    target = f"{service.root}/inside"
    shutil.copytree(made / what, tmp_path / "target")
    shutil.copytree(made / "tree", tmp_path / "target" / place)
    uploaded(service, tmp_path / "target", target)
    before = {name: service.content(name) for name in service.names()}
    refused = surgery("rescale", made / "tree", target, *EDIT, "-q")
    assert refused.code == 2
    assert refused.err.startswith(f"error: `--force` would remove '{target}/{place}' with")
    assert {name: service.content(name) for name in service.names()} == before


def test_what_is_no_checkpoint_goes_with_what_is_replaced(surgery, made, tmp_path):
    """As the documents say; and so does what a save, or another run, has left there."""
    target = shutil.copytree(made / "run", tmp_path / "target")
    (target / "notes.txt").write_text("mine")
    shutil.copytree(target / "200", target / "300.orbax-checkpoint-tmp-17")
    shutil.copytree(target / "200", target / ".new.surgery-tmp-1-2-3")
    with ocp.Checkpointer(ocp.JsonCheckpointHandler()) as checkpointer:
        checkpointer.save(target / "metadata", {"as": "older releases of Orbax did"})
    (target / "tensorboard").mkdir()
    (target / "tensorboard" / "checkpoint").write_text('model_checkpoint_path: "ckpt-1"')
    (target / "elsewhere").symlink_to(made)
    (target / "200" / "around").symlink_to(target)
    done = surgery("rescale", made / "tree", target, *EDIT, "-q")
    assert done.code == 0, done.err
    assert files(made)
    assert not (target / "notes.txt").exists()


@pytest.mark.parametrize("is_recorded", [True, False])
def test_trees_of_an_item_with_a_handler_of_ones_own_go_with_it(
    surgery, made, tmp_path, is_recorded
):
    """Where no handlers are on record, as before 0.9, every folder of a step may be such an item."""
    target = shutil.copytree(made / "run", tmp_path / "target")
    shutil.copytree(made / "tree", target / "200" / "model" / "params")
    record = target / "200" / "_CHECKPOINT_METADATA"
    document = json.loads(record.read_text())
    document["item_handlers"]["model"] = "my.own.Handler"
    if is_recorded:
        record.write_text(json.dumps(document))
    else:
        record.unlink()
    done = surgery("rescale", made / "tree", target, *EDIT, "-q")
    assert done.code == 0, done.err


@pytest.mark.parametrize("look", [["--dry-run"], ["-q"]], ids=["preview", "run"])
def test_a_step_of_several_trees_does_not_go_into_a_step(surgery, made, tmp_path, look):
    """Orbax restores such a step no more by itself, which it did before."""
    run = shutil.copytree(made / "run", tmp_path / "run")
    before = files(run)
    for target in (run / "200/more", run / "200/state"):
        words = ("state/params/w", "--by", "2", *(["--force"] * (target.name == "state")))
        refused = surgery("rescale", f"{made / 'run'}@100", target, *words, *look)
        assert refused.code == 2
        assert f"and '{target.name}' would be one, too: several trees are no item" in refused.err
    assert files(run) == before
    with ocp.CheckpointManager(run) as manager:
        assert set(manager.restore(200)) == {"state", "ema", "cursor"}
    broken = shutil.copytree(run / "100", run / "200/more") and run
    with ocp.CheckpointManager(broken) as manager, pytest.raises((ValueError, KeyError)):
        manager.restore(200)
