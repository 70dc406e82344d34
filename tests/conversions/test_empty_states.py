"""An optimizer without a leaf of its own, from NNX to linen: its places are made as optax has them."""

import jax
import jax.numpy as jnp
import optax
import orbax.checkpoint as ocp
import pytest
from flax import nnx

from tests.conversions.routes import PLANS, surgery


@pytest.fixture
def saved(tmp_path):
    """A model with plain SGD in NNX, and the state of the linen program, as it begins."""
    rngs = nnx.Rngs(0)
    model = nnx.Dict(lin=nnx.Linear(4, 3, rngs=rngs))
    optimizer = nnx.Optimizer(model, optax.sgd(1e-2), wrt=nnx.Param)
    params = {"lin": {"kernel": jnp.zeros((4, 3)), "bias": jnp.zeros(3)}}
    state = {"params": params, "opt_state": optax.sgd(1e-2).init(params), "step": jnp.uint32(0)}
    with ocp.StandardCheckpointer() as checkpointer:
        tree = {"model": nnx.state(model), "optimizer": nnx.state(optimizer)}
        checkpointer.save(tmp_path / "nnx", tree)
        checkpointer.save(tmp_path / "fresh", state)
    return model, state


def test_a_checkpoint_of_the_program_tells_the_empty_places(saved, tmp_path):
    model, state = saved
    plan = PLANS / "nnx-to-linen-like.yaml"
    like = f"like={tmp_path / 'fresh'}"
    text, code = surgery("apply", tmp_path / "nnx", tmp_path / "new", plan, "--set", like)

    assert code == 0, text
    target = jax.tree.map(ocp.utils.to_shape_dtype_struct, state)
    with ocp.StandardCheckpointer() as checkpointer:
        restored = checkpointer.restore(tmp_path / "new", target)
    assert (restored["params"]["lin"]["kernel"] == model["lin"].kernel[...]).all()
