"""An edit from bucket to bucket gives what it gives on a disk, and Orbax restores it from there."""

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from etils import epath

from surgery_cli import surgery
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.store.open.checkpoint import open_checkpoint
from tests.buckets.checkpoints import saved, uploaded

TREE = {
    "params": {
        f"layers_{n}": {
            "w": np.arange(24, dtype=np.float32).reshape(4, 6) + n,
            "b": np.float32([n]),
        }
        for n in range(3)
    },
    "note": "text",
    "step": np.int32(7),
}
DONOR = jax.tree.map(lambda leaf: leaf if isinstance(leaf, str) else leaf * 3, TREE)

EDITS = {
    "rename": ("rename", {"moves": {"params/layers_0": "params/first"}}),
    "delete": ("delete", {"at": "params/layers_2"}),
    "cast": ("cast", {"at": "params/**", "to": "bfloat16"}),
    "transpose": ("transpose", {"at": "params/layers_1/w"}),
    "from a donor": ("replace", {"at": "params/layers_1", "with": "DONOR"}),
    "average": ("average", {"at": "params", "with": "DONOR"}),
    "stack": ("stack", {"at": "params/layers_{0..2}", "to": "params/layers"}),
}


@pytest.mark.sampled(4)
@pytest.mark.covers(1)
@pytest.mark.parametrize("how", [{}, {"use_ocdbt": False}, {"use_zarr3": True}], ids=str)
@pytest.mark.parametrize("edit", EDITS)
def test_the_same_comes_out_there_as_here(bucket, tmp_path, how, edit):
    name, options = EDITS[edit]
    results = {}
    for place in (f"{tmp_path}", "gs://bkt"):
        for folder, tree in (("ck", TREE), ("donor", DONOR)):
            if place == "gs://bkt":
                uploaded(bucket, tmp_path / folder, f"{place}/{folder}")
            else:
                saved(tmp_path / folder, tree, **how)
        said = {k: f"{place}/donor" if v == "DONOR" else v for k, v in options.items()}
        surgery.apply(f"{place}/ck", f"{place}/new", plan_of([operation_from_options(name, said)]))
        results[place] = open_checkpoint(f"{place}/new")
    here, there = results.values()
    assert surgery.diff(here.address, there.address).equal
    with ocp.PyTreeCheckpointer() as checkpointer:
        expected = checkpointer.restore(tmp_path / "new")
        found = checkpointer.restore(epath.Path("gs://bkt/new"))
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_an_item_of_a_step_is_a_source_of_its_own(bucket, tmp_path):
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        manager.save(3, args=ocp.args.StandardSave(TREE["params"]))
    uploaded(bucket, tmp_path / "run", "gs://bkt/run")
    rescaled = plan_of([operation_from_options("rescale", {"at": "**", "by": 2.0})])
    surgery.apply("gs://bkt/run/3/default", "gs://bkt/new", rescaled)
    with ocp.PyTreeCheckpointer() as checkpointer:
        found = checkpointer.restore(epath.Path("gs://bkt/new"))
    jax.tree.map(
        lambda new, old: np.testing.assert_array_equal(new, old * 2), found, TREE["params"]
    )
