"""Checkpoints written as T5X's: TensorStore opens the specs as they stand in the msgpack file, which Flax restores."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest
from flax import traverse_util

from surgery_cli import surgery
from surgery_cli.errors import PlanError
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.settings.export import Export
from surgery_cli.store.open.checkpoint import open_checkpoint
from tests.store.t5x_checkpoints import PARAMS, load_t5x, train_state, write_t5x

T5X = Export(format="t5x")


def save(path: Path, tree: Any) -> Path:
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(path, tree)
    return path


def assert_same(one: Any, other: Any) -> None:
    left, right = (traverse_util.flatten_dict(tree, keep_empty_nodes=True) for tree in (one, other))
    assert sorted(left) == sorted(right)
    for path, values in left.items():
        assert np.asarray(values).dtype == np.asarray(right[path]).dtype, path
        np.testing.assert_array_equal(values, right[path], err_msg=str(path))


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_t5x_loads_a_train_state_that_orbax_saved(tmp_path: Path, dtype: Any) -> None:
    state = train_state() | {"target": jax.tree.map(lambda leaf: leaf.astype(dtype), PARAMS)}
    state["flax_mutables"] = {"counts": np.arange(3)}
    source = save(tmp_path / "source", jax.tree.map(jnp.asarray, state))
    new = tmp_path / "checkpoint_1000"
    report = surgery.apply(str(source), str(new), plan_of([], output=T5X))
    state["flax_mutables"] = {"counts": np.arange(3, dtype=np.int32)}
    assert_same(load_t5x(new), state)
    folders = {path.name for path in new.iterdir() if path.is_dir()}
    assert "state.param_states.decoder.layers_0.mlp.wi.kernel.v_row" in folders
    assert {file.name for file in report.exported.files} == {*folders, "checkpoint"}
    assert open_checkpoint(str(new)).layout == "per-leaf zarr2 of T5X"
    assert not surgery.verify(str(new)).findings


def test_params_come_out_after_edits_and_go_in_again(tmp_path: Path) -> None:
    source = save(tmp_path / "source", {"params": jax.tree.map(jnp.asarray, PARAMS)})
    edits = [
        operation_from_options("rename", {"at": "params", "to": "target"}),
        operation_from_options("rescale", {"at": "target/**", "by": "2"}),
    ]
    new = tmp_path / "checkpoint_0"
    surgery.apply(str(source), str(new), plan_of(edits, output=T5X))
    assert_same(load_t5x(new), {"target": jax.tree.map(lambda leaf: leaf * 2, PARAMS)})
    given = {"at": "params", "with": str(new), "from": "target"}
    plan = plan_of([operation_from_options("replace", given)])
    surgery.apply(str(source), str(tmp_path / "back"), plan)
    with ocp.PyTreeCheckpointer() as checkpointer:
        found = checkpointer.restore(tmp_path / "back")["params"]
    assert_same(found, jax.tree.map(lambda leaf: leaf * 2, PARAMS))


def test_t5x_comes_out_of_t5x(tmp_path: Path) -> None:
    source = write_t5x(tmp_path / "checkpoint_7", 2)
    surgery.apply(str(source), str(tmp_path / "new"), plan_of([], output=T5X))
    assert_same(load_t5x(tmp_path / "new"), train_state())


@pytest.mark.parametrize(
    ("tree", "request_", "says"),
    [
        ({"params": {"w": np.ones(3)}}, T5X, "at its root T5X knows"),
        ({"target": {"a/b": np.ones(3)}}, T5X, "a name with a slash"),
        ({"target": {"w": np.ones(3, np.uint16)}}, T5X, "uint16"),
        ({"target": {"w": np.ones(3)}}, Export(format="t5x", shard="1GB"), "`shard`"),
    ],
)
def test_what_t5x_has_no_place_for_is_refused_before_anything_is_written(
    tmp_path: Path, tree: Any, request_: Export, says: str
) -> None:
    source = save(tmp_path / "source", tree)
    with pytest.raises(PlanError, match=says):
        surgery.apply(str(source), str(tmp_path / "new"), plan_of([], output=request_))
    assert not (tmp_path / "new").exists()
