"""Doctor of a single checkpoint, a file or one step of the run that the command stands in."""

import numpy as np
import orbax.checkpoint as ocp
import pytest
from flax import serialization

TREE = {"params": {"w": np.arange(4096, dtype=np.float32)}}


def saved(folder):
    with ocp.CheckpointManager(folder) as manager:
        for step in (10, 30):
            manager.save(step, args=ocp.args.StandardSave(TREE))
    return folder


@pytest.mark.parametrize("options", [(), ("--read-data",)], ids=str)
@pytest.mark.parametrize("name", ["e.safetensors", "e.npz", "e.msgpack", "checkpoint_5"])
def test_a_file_is_looked_at_as_a_run_is(surgery, tmp_path, name, options):
    """It ended with `Not a directory` (3), as steps were looked for in it."""
    file = tmp_path / name
    if name.startswith("e"):
        run = saved(tmp_path / "run")
        ended = surgery("export", run, file, "--to", file.suffix[1:])
        assert ended.code == 0, ended.err
    else:
        file.write_bytes(serialization.to_bytes(TREE))
    words = ("doctor", file, *options, "--settled", "0", "--json")
    ended = surgery(*words)
    assert (ended.code, ended.document["counts"]) == (0, {"whole": 1}), ended
    file.write_bytes(file.read_bytes()[:-4096])
    ended = surgery(*words)
    assert ended.code == 1, ended
    assert "whole" not in ended.document["counts"]


@pytest.mark.parametrize("step", [".@10", "./@10", "../run/.@10"])
@pytest.mark.parametrize(
    "words",
    [("doctor", "{}"), ("inspect", "{}"), ("rescue", "{}"), ("rescue", "{}", "../new")],
    ids=str,
)
def test_a_step_of_the_run_that_one_stands_in(surgery, tmp_path, monkeypatch, words, step):
    """Where there is no name before the `@`, it was a bug of ours."""
    monkeypatch.chdir(saved(tmp_path / "run"))
    ended = surgery(*(word.format(step) for word in words))
    assert ended.code in (0, 2), ended
    if step == ".@10":
        assert ended.code == 0, ended
