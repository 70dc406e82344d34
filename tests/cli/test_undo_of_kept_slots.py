"""An undo names what its run has changed, and no slot that was kept."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
import yaml

EDITS = {
    "rescale": ("params/w", "--by", "3"),
    "reinit": ("params/w", "--init", "normal"),
    "clip": ("params/w", "--max", "0.1"),
    "cast": ("params/w", "--to", "bfloat16"),
    "replace": ("params/w", "--with", "{other}"),
}


def trained(folder, seed):
    tx = optax.adamw(1e-3)
    params = {"w": jax.random.normal(jax.random.key(seed), (8, 4)), "b": jnp.ones(4)}
    state = tx.init(params)
    for step in range(3):
        grads = jax.tree.map(lambda leaf, n=step: leaf * (n + 1), params)
        updates, state = tx.update(grads, state, params)
        params = optax.apply_updates(params, updates)
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(folder, {"params": params, "opt_state": state})
    return folder


def restored(folder):
    with ocp.StandardCheckpointer() as checkpointer:
        return checkpointer.restore(folder)


@pytest.mark.parametrize("edit", EDITS)
def test_slots_that_were_kept_are_not_taken_back(surgery, tmp_path, edit):
    """What was done to them since was undone, too, where it was said to stay."""
    source, other = trained(tmp_path / "ck", 0), trained(tmp_path / "other", 1)
    words = [word.format(other=other) for word in EDITS[edit]]
    run = (edit, source, tmp_path / "new", *words, "--optimizer", "keep")
    assert surgery(*run).code == 0
    record = json.loads((tmp_path / "new" / "surgery.json").read_text())
    changed = {leaf["path"] for leaf in record["leaves"]}
    assert changed == {"params/w"}
    undo = surgery("plan", tmp_path / "new", "--inverse").out
    assert "opt_state" not in undo, undo
    (tmp_path / "undo.yaml").write_text(undo)
    assert yaml.safe_load(undo)["edits"]

    slot = ("opt_state/0/mu/w", "--by", "0.5")
    assert surgery("rescale", tmp_path / "new", tmp_path / "later", *slot).code == 0
    ended = surgery("apply", tmp_path / "later", tmp_path / "undone", tmp_path / "undo.yaml")
    assert ended.code == 0, ended.err
    before, after = restored(source), restored(tmp_path / "undone")
    np.testing.assert_array_equal(after["params"]["w"], before["params"]["w"])
    mu = [tree["opt_state"][0]["mu"]["w"] for tree in (before, after)]
    np.testing.assert_array_equal(mu[1], mu[0] * np.float32(0.5))
