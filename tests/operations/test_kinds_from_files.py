"""A file of arrays does not say how a script holds them: they are held as those of the tree are that they come into."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from safetensors.numpy import save_file

from surgery_cli import surgery
from surgery_cli.planning import operation_from_options, plan_of

VALUES = np.arange(12, dtype=np.float32).reshape(4, 3)
FILES = {
    "npy": lambda path: np.save(path, VALUES),
    "npz": lambda path: np.savez(path, new=VALUES),
    "safetensors": lambda path: save_file({"new": VALUES}, path),
}


@pytest.mark.parametrize("kind", [None, "numpy", "array"])
@pytest.mark.parametrize("tree", ["of JAX", "of NumPy"])
@pytest.mark.parametrize("edit", ["add", "merge"])
@pytest.mark.parametrize("suffix", FILES)
def test_what_comes_from_a_file_is_held_as_the_rest(tmp_path, suffix, edit, tree, kind):
    if edit == "merge" and (suffix == "npy" or kind):
        pytest.skip("an array without a name is no tree, and `merge` has no field for it")
    if kind == "array" and tree == "of NumPy":
        pytest.skip("no sharding is on record there, by which Orbax could restore an array of JAX")
    params = {"w": jnp.ones((4, 3))}
    if tree == "of NumPy":
        params = jax.tree.map(np.asarray, params)
    state = {**params, "opt_state": optax.trace(0.9).init(params)}
    if tree == "of NumPy":
        state = jax.tree.map(np.asarray, state)
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "source", state)
    file = tmp_path / f"new.{suffix}"
    FILES[suffix](file)
    entry = "" if suffix == "npy" else ":new"
    fields = {"at": "new", "with": f"{file}{entry}"} if edit == "add" else {"with": str(file)}
    if kind:
        fields["kind"] = kind
    plan = plan_of([operation_from_options(edit, fields)])
    options = surgery.Options(optimizer="reset")
    surgery.apply(str(tmp_path / "source"), str(tmp_path / "made"), plan, options=options)
    with ocp.PyTreeCheckpointer() as checkpointer:
        found = checkpointer.restore(tmp_path / "made")
    is_numpy = kind == "numpy" if kind else tree == "of NumPy"
    assert isinstance(found["new"], np.ndarray if is_numpy else jax.Array)
    np.testing.assert_array_equal(found["new"], VALUES)
