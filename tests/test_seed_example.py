"""Flax's model surgery guide, from end to end, with the checkpoint in place of the Python session.

Source: https://flax-linen.readthedocs.io/en/latest/guides/model_surgery.html
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import linen as nn
from flax.core import freeze
from flax.training.train_state import TrainState

from surgery_cli import surgery
from surgery_cli.planning import operation_from_options, plan_of

SHAPES = {
    "Conv_0/bias": (32,),
    "Conv_0/kernel": (3, 3, 1, 32),
    "Conv_1/bias": (64,),
    "Conv_1/kernel": (3, 3, 32, 64),
    "Dense_0/bias": (256,),
    "Dense_0/kernel": (3136, 256),
    "Dense_1/bias": (10,),
    "Dense_1/kernel": (256, 10),
}
EDITED = ("params", "opt_state/0/mu", "opt_state/0/nu")


class CNN(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(features=32, kernel_size=(3, 3))(x))
        x = nn.avg_pool(x, window_shape=(2, 2), strides=(2, 2))
        x = nn.relu(nn.Conv(features=64, kernel_size=(3, 3))(x))
        x = nn.avg_pool(x, window_shape=(2, 2), strides=(2, 2))
        x = x.reshape((x.shape[0], -1))
        x = nn.relu(nn.Dense(features=256)(x))
        return nn.log_softmax(nn.Dense(features=10)(x))


@pytest.fixture(scope="module", params=["params as dict", "params frozen"])
def state(request):
    """A TrainState after one step of `optax.adam(1.0)`, so that mu and nu are not zero."""
    model = CNN()
    draws = np.random.default_rng(0)
    images = draws.standard_normal((1, 28, 28, 1), np.float32)
    # the shapes of `init` under values of NumPy: JAX compiles each initializer for seconds
    shapes = jax.eval_shape(model.init, jax.random.key(0), images)["params"]
    params = jax.tree.map(
        lambda leaf: jnp.asarray(0.05 * draws.standard_normal(leaf.shape, leaf.dtype)), shapes
    )
    params = freeze(params) if request.param == "params frozen" else params
    state = TrainState.create(apply_fn=model.apply, params=params, tx=optax.adam(1.0))

    def loss(params):
        return -model.apply({"params": params}, images)[0, 3]

    return stepped(state, jax.jit(jax.grad(loss))(params))


@jax.jit
def stepped(state, grads):
    return state.apply_gradients(grads=grads)


@pytest.fixture(scope="module")
def checkpoint(state, tmp_path_factory):
    path = tmp_path_factory.mktemp("seed") / "cnn"
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, state)
    return path


def normalized(*paths):
    return plan_of(
        [
            operation_from_options("normalize", {"at": path, "optimizer": "keep"})
            if path.startswith("params")
            else operation_from_options("normalize", {"at": path})
            for path in paths
        ]
    )


def restored(path, state):
    """What the training script gets, with its own abstract state as the target."""
    target = jax.tree.map(ocp.utils.to_shape_dtype_struct, state)
    with ocp.StandardCheckpointer() as checkpointer:
        return checkpointer.restore(path, target)


def test_the_tree_has_the_shapes_that_the_guide_prints(checkpoint):
    inspection = surgery.inspect(str(checkpoint))
    shapes = {row.path: row.shape for row in inspection.leaves}
    for place in EDITED:
        assert {p: shapes[f"{place}/{p}"] for p in SHAPES} == SHAPES


def test_a_kernel_divided_by_its_norm_is_the_guides_own_line(checkpoint, state, tmp_path):
    surgery.apply(str(checkpoint), str(tmp_path / "out"), normalized("params/Dense_1/kernel"))
    before = state.params["Dense_1"]["kernel"]
    after = restored(tmp_path / "out", state).params["Dense_1"]["kernel"]
    np.testing.assert_allclose(after, before / jnp.linalg.norm(before), rtol=2e-6)
    assert np.linalg.norm(np.asarray(after, np.float64)) == pytest.approx(1.0, abs=1e-6)


def test_mu_and_nu_are_edited_in_the_same_way_and_nothing_else_changes(checkpoint, state, tmp_path):
    edited = [f"{place}/Dense_1/kernel" for place in EDITED]
    surgery.apply(str(checkpoint), str(tmp_path / "out"), normalized(*edited))
    after = restored(tmp_path / "out", state)
    assert jax.tree.structure(after) == jax.tree.structure(state)
    pairs = zip(jax.tree_util.tree_leaves_with_path(state), jax.tree.leaves(after), strict=True)
    changed = []
    for (path, leaf), edited_leaf in pairs:
        old, new = np.asarray(leaf), np.asarray(edited_leaf)
        assert (old.dtype, old.shape) == (new.dtype, new.shape)
        if old.tobytes() != new.tobytes():
            changed.append(jax.tree_util.keystr(path))
            wide = old.astype(np.float64)
            np.testing.assert_allclose(new, wide / np.sqrt((wide**2).sum()), rtol=2e-6)
    assert len(changed) == 3
    assert all("Dense_1" in path and "kernel" in path for path in changed)


def test_training_goes_on_from_the_result(checkpoint, state, tmp_path):
    edited = [f"{place}/Dense_1/kernel" for place in EDITED]
    surgery.apply(str(checkpoint), str(tmp_path / "out"), normalized(*edited))
    resumed = restored(tmp_path / "out", state)
    grads = jax.tree.map(jnp.ones_like, resumed.params)
    after = stepped(resumed, grads)
    assert int(after.step) == int(state.step) + 1
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after.params))
