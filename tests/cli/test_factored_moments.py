"""From which size on Adafactor factors second moments is taken from who states it; optax's own `init` judges."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

SHAPES = {"wide": (24, 20), "deep": (2, 20, 24), "head": (40, 3), "bias": (7,)}
SCRIPT = """
import jax.numpy as jnp
import optax


def make():
    params = {{name: jnp.ones(shape) for name, shape in {shapes}.items()}}
    tx = optax.adafactor(0.1, {setting})
    return {{"params": params, "opt_state": tx.init(params), "tx": tx}}
"""


def optimizer(setting):
    name, value = setting.split("=")
    return optax.adafactor(0.1, **{name: int(value)})


def trained(tx, params, state=None):
    state = tx.init(params) if state is None else state
    draws = np.random.default_rng(0)
    gradients = jax.tree.map(lambda p: jnp.asarray(draws.normal(size=p.shape), p.dtype), params)
    return tx.update(gradients, state, params)[1]


def save(path, tree):
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, tree)
    return path


def restored(path, abstract):
    with ocp.StandardCheckpointer() as checkpointer:
        return checkpointer.restore(path, abstract)


EDITS = {
    "slice": (("slice", "params/wide", "--slices", ":,:10"), lambda p: p[:, :10]),
    "slice below": (("slice", "params/wide", "--slices", ":,:6"), lambda p: p[:, :6]),
    "transposed": (("transpose", "params/deep", "--axes", "2,0,1"), lambda p: p.transpose(2, 0, 1)),
    "drawn anew": (
        ("reinit", "params/wide", "--init", "zeros", "--shape", "24,12", "--optimizer", "reset"),
        lambda p: jnp.zeros((24, 12)),
    ),
}


@pytest.mark.sampled(4)
@pytest.mark.covers(1)
@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("least", [8, 16])
@pytest.mark.parametrize("way", ["call", "script"])
def test_the_size_that_is_stated_decides_what_is_factored(surgery, tmp_path, edit, least, way):
    setting = f"min_dim_size_to_factor={least}"
    tx = optimizer(setting)
    params = {name: jnp.ones(shape) for name, shape in SHAPES.items()}
    source = save(tmp_path / "source", {"params": params, "opt_state": trained(tx, params)})
    (command, at, *options), change = EDITS[edit]
    name = at.rpartition("/")[2]
    after = {**params, name: change(params[name])}
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(shapes=jax.tree.map(np.shape, after), setting=setting))
    told = {
        "call": ("--optimizer-kind", f"adafactor(0.1, {setting})"),
        "script": ("--like-init", f"{script}:make"),
    }[way]

    result = surgery(command, source, tmp_path / "new", at, *options, *told, "--json")

    assert result.code == 0, result.err
    abstract = {"params": after, "opt_state": tx.init(after)}
    found = restored(tmp_path / "new", abstract)
    shapes = jax.tree.map(np.shape, found["opt_state"])
    assert shapes == jax.tree.map(np.shape, abstract["opt_state"])
    state = trained(tx, found["params"], found["opt_state"])
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state))
    assert not any("default for `min_dim" in note for note in result.document["notes"])


def test_a_size_that_nobody_states_is_asked_for(surgery, tmp_path):
    params = {name: jnp.ones(shape) for name, shape in SHAPES.items()}
    state = trained(optimizer("min_dim_size_to_factor=8"), params)
    source = save(tmp_path / "source", {"params": params, "opt_state": state})
    for (command, at, *options), _ in (EDITS["slice"], EDITS["drawn anew"]):
        refused = surgery(command, source, tmp_path / "new", at, *options)
        assert refused.code == 2
        assert "--optimizer-kind 'adafactor(…, min_dim_size_to_factor=N)'" in refused.err
        assert "--like-init" in refused.err


@pytest.mark.parametrize("stated", ["min_dim_size_to_factor=300", "factored=0"])
def test_a_size_above_what_the_disk_shows_is_taken_as_well(surgery, tmp_path, stated):
    params = {"w": jnp.ones((100, 400)), "b": jnp.ones(3)}
    tx = optimizer(stated)
    source = save(tmp_path / "source", {"params": params, "opt_state": trained(tx, params)})
    command = ("reshape", source, tmp_path / "new", "params/w", "--shape", "200,200")
    kind = ("--optimizer-kind", f"adafactor(0.1, {stated})")

    result = surgery(*command, *kind)

    assert result.code == 0, result.err
    after = {**params, "w": jnp.ones((200, 200))}
    abstract = {"params": after, "opt_state": tx.init(after)}
    found = restored(tmp_path / "new", abstract)["opt_state"]
    assert jax.tree.map(np.shape, found) == jax.tree.map(np.shape, abstract["opt_state"])
