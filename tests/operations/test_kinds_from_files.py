"""A file of arrays does not say how a script holds them: they are held as those of the tree are that they come into."""

from itertools import product

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


CASES = [
    (suffix, edit, tree, kind)
    for suffix, edit, tree, kind in product(
        FILES, ("add", "merge"), ("of JAX", "of NumPy"), (None, "numpy", "array")
    )
    # an array without a name is no tree, `merge` has no field for a kind, and in a tree of NumPy no sharding is on
    # record by which Orbax could restore an array of JAX
    if not (edit == "merge" and (suffix == "npy" or kind)) and (kind, tree) != ("array", "of NumPy")
]


@pytest.mark.parametrize(("suffix", "edit", "tree", "kind"), CASES)
def test_what_comes_from_a_file_is_held_as_the_rest(tmp_path, suffix, edit, tree, kind):
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


@pytest.mark.parametrize("edit", ["add", "merge"])
@pytest.mark.parametrize("dtype", ["int64", "uint64", "float64", "complex128"])
def test_what_jax_would_narrow_keeps_its_values(tmp_path, dtype, edit):
    """Without `jax_enable_x64`, as a script runs unless it says so, an array of JAX has 32 bits at most."""
    values = np.array([2**40, 1], dtype)
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "source", {"w": jnp.ones(3)})
    np.savez(tmp_path / "new.npz", new=values)
    found = made(tmp_path, edit, "source")
    assert isinstance(found["new"], np.ndarray)
    assert found["new"].dtype == dtype
    np.testing.assert_array_equal(found["new"], values)


@pytest.mark.parametrize("kind", [None, "numpy", "array"])
@pytest.mark.parametrize(
    ("stored", "wanted"),
    [
        ("float64", "float32"),
        ("float64", "bfloat16"),
        ("float32", "float64"),
        ("float16", "float32"),
        ("int64", "int32"),
        ("int8", "uint64"),
        ("complex128", "complex64"),
    ],
)
def test_whose_array_it_is_goes_by_the_dtype_that_it_gets(tmp_path, stored, wanted, kind):
    """What JAX would narrow is NumPy's, whatever it was before; and a kind that is said is what it is."""
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "source", {"w": jnp.ones(3)})
    np.savez(tmp_path / "new.npz", new=np.array([2, 1], stored))
    fields = {"at": "new", "with": f"{tmp_path / 'new.npz'}:new", "dtype": wanted, "cast": True}
    fields |= {"kind": kind} if kind else {}
    plan = plan_of([operation_from_options("add", fields)])
    surgery.apply(str(tmp_path / "source"), str(tmp_path / "made"), plan)
    with ocp.PyTreeCheckpointer() as checkpointer:
        found = checkpointer.restore(tmp_path / "made")["new"]
    is_kept = jax.device_put(np.ones(1, wanted)).dtype == jnp.dtype(wanted)
    is_of_jax = kind == "array" if kind else is_kept
    assert isinstance(found, jax.Array if is_of_jax else np.ndarray)
    np.testing.assert_array_equal(np.asarray(found, complex), [2, 1])
    assert (found.dtype == jnp.dtype(wanted)) == (is_kept or not is_of_jax)


@pytest.mark.parametrize("edit", ["add", "merge"])
@pytest.mark.parametrize("tree", [{"step": 5, "rate": 0.1}, {"step": 5, "nothing": {}}], ids=str)
def test_where_no_array_of_jax_stands_none_comes(tmp_path, tree, edit):
    """No sharding is on record by which Orbax could restore one."""
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "source", tree)
    np.savez(tmp_path / "new.npz", new=VALUES)
    np.testing.assert_array_equal(made(tmp_path, edit, "source")["new"], VALUES)


def test_an_item_of_numpy_gets_no_array_of_jax_because_another_item_has_some(tmp_path):
    items = {"params": {"w": jnp.ones(3)}, "stats": {"m": np.ones(3)}}
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        saves = {name: ocp.args.StandardSave(tree) for name, tree in items.items()}
        manager.save(1, args=ocp.args.Composite(**saves))
    np.savez(tmp_path / "new.npz", new=VALUES)
    for place, kind in (("stats", np.ndarray), ("params", jax.Array)):
        fields = {"at": f"{place}/new", "with": f"{tmp_path / 'new.npz'}:new"}
        plan = plan_of([operation_from_options("add", fields)])
        surgery.apply(str(tmp_path / "run"), str(tmp_path / place), plan)
        with ocp.PyTreeCheckpointer() as checkpointer:
            found = checkpointer.restore(tmp_path / place / "1" / place)
        assert isinstance(found["new"], kind)
        np.testing.assert_array_equal(found["new"], VALUES)


def made(folder, edit, source):
    """What Orbax restores of a checkpoint with `new` from a file."""
    file = str(folder / "new.npz")
    fields = {"at": "new", "with": f"{file}:new"} if edit == "add" else {"with": file}
    plan = plan_of([operation_from_options(edit, fields)])
    surgery.apply(str(folder / source), str(folder / "made"), plan)
    with ocp.PyTreeCheckpointer() as checkpointer:
        return checkpointer.restore(folder / "made")
