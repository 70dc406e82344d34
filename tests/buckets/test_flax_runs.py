"""Runs of Flax files in a bucket: a file comes whole, and no mark says that of it."""

import json

import numpy as np
import pytest
from flax import config, serialization
from flax.training import checkpoints

from surgery_cli.store.filesystem.names import name_of_record

TREE = {"params": {"w": np.arange(8, dtype=np.float32)}}


@pytest.fixture(params=["checkpoint_", ""])
def run(request, service, tmp_path):
    """The address of a run of two steps, and the prefix of their names."""
    before = config.flax_use_orbax_checkpointing
    config.update("flax_use_orbax_checkpointing", False)
    for step in (3, 9):
        checkpoints.save_checkpoint(
            str(tmp_path / "run"), TREE, step=step, prefix=request.param, keep=5
        )
    config.update("flax_use_orbax_checkpointing", before)
    service.upload(tmp_path / "run", f"{service.root}/run")
    return f"{service.root}/run", request.param


@pytest.mark.parametrize("named", ["{run}", "{run}@3", "{run}@latest", "{run}/{prefix}9"])
def test_a_step_that_is_a_file_asks_for_no_mark(surgery, run, named):
    address, prefix = run
    done = surgery("inspect", named.format(run=address, prefix=prefix), "--json")
    assert done.code == 0, done.err
    assert [leaf["path"] for leaf in json.loads(done.out)["leaves"]] == ["params/w"]


def test_a_step_is_added_to_such_a_run(surgery, service, run):
    address, prefix = run
    done = surgery("rescale", address, address, "params/w", "--by", "2", "--as-step", "12")
    assert done.code == 0, done.err
    new = f"{prefix}12"
    names = {name.removeprefix("run/") for name in service.names("run/")}
    assert names == {f"{prefix}3", f"{prefix}9", new, name_of_record(new)}
    tree = serialization.msgpack_restore(service.content(f"run/{new}"))
    np.testing.assert_array_equal(tree["params"]["w"], TREE["params"]["w"] * 2)
    assert surgery("verify", f"{address}@latest").code == 0


def test_doctor_finds_all_of_it_whole(surgery, run):
    done = surgery("doctor", run[0])
    assert done.code == 0, (done.out, done.err)
    assert "unfinished" not in done.out
