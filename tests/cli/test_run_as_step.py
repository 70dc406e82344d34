"""A run is not put where a step of another run belongs: Orbax, and Flax, would take it for one."""

import flax.training.checkpoints as flax_checkpoints
import numpy as np
import orbax.checkpoint as ocp
import pytest

TREE = {"params": {"w": np.arange(6, dtype=np.float32)}}


def saved(folder, steps=(10, 30)):
    with ocp.CheckpointManager(folder) as manager:
        for step in steps:
            manager.save(step, args=ocp.args.StandardSave(TREE))
    return folder


def saved_by_flax(folder, steps=(10, 30)):
    for step in steps:
        flax_checkpoints.save_checkpoint(folder, TREE, step, keep=9)
    return folder


def latest(folder):
    with ocp.CheckpointManager(folder) as manager:
        return manager.restore(manager.latest_step(), args=ocp.args.StandardRestore(TREE))


COMMANDS = {
    "rescale": ("params/w", "--by", "2", "--optimizer", "keep"),
    "compact": (),
    "reshard": ("--chunk-bytes", "1MiB"),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("way", [(), ("--dry-run",), ("--force",), ("--resume",)], ids=str)
@pytest.mark.parametrize("name", ["40", "30"])
@pytest.mark.parametrize("address", ["{}", "{}@30"])
def test_a_run_is_no_step_of_another(surgery, tmp_path, command, way, name, address):
    """The run that it went into was not restored any more."""
    run, other = saved(tmp_path / "run"), saved(tmp_path / "other")
    before = sorted(other.rglob("*"))
    ended = surgery(command, address.format(run), other / name, *COMMANDS[command], *way)
    assert ended.code == 2, ended.out
    if name == "40" or "--force" in way:
        assert "the result is a run itself" in ended.err
        assert f"name the step that is read by its path, '{run / '30'}'" in ended.err
    assert sorted(other.rglob("*")) == before
    np.testing.assert_array_equal(latest(other)["params"]["w"], TREE["params"]["w"])


def test_its_step_becomes_one(surgery, tmp_path):
    run, other = saved(tmp_path / "run"), saved(tmp_path / "other")
    assert surgery("rescale", run / "30", other / "40", *COMMANDS["rescale"]).code == 0
    np.testing.assert_array_equal(latest(other)["params"]["w"], 2 * TREE["params"]["w"])


def test_nor_of_one_of_flax(surgery, tmp_path):
    run, other = saved_by_flax(tmp_path / "run"), saved_by_flax(tmp_path / "other")
    ended = surgery("rescale", run, other / "checkpoint_40", *COMMANDS["rescale"])
    assert ended.code == 2, ended.out
    assert f"'{run / 'checkpoint_30'}'" in ended.err
    assert flax_checkpoints.restore_checkpoint(other, None)["params"]["w"].tolist() == [*range(6)]


def test_runs_that_have_numbers_stand_beside_one_another(surgery, tmp_path):
    run = saved(tmp_path / "runs" / "1")
    assert surgery("rescale", run, tmp_path / "runs" / "2", *COMMANDS["rescale"]).code == 0


def test_a_step_is_added_to_its_own_run(surgery, tmp_path):
    run = saved(tmp_path / "run")
    assert surgery("rescale", run, run, *COMMANDS["rescale"], "--as-step", "40").code == 0
    np.testing.assert_array_equal(latest(run)["params"]["w"], 2 * TREE["params"]["w"])
