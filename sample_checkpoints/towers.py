"""Two towers: the CNN of the digits and one vector a label, trained to agree."""

from pathlib import Path

import digits
import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax import linen as nn
from flax.training.train_state import TrainState


class Towers(nn.Module):
    """``images: [batch, 8, 8, 1]`` -> how well each fits each of ten labels, ``[batch, 10]``."""

    @nn.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        labels = nn.Embed(10, 10, name="txt")(np.arange(10))
        return digits.CNN(name="img")(images) @ labels.T


def create_state() -> TrainState:
    """A fresh training state."""
    model = Towers()
    params = model.init(jax.random.key(1), np.ones((1, 8, 8, 1)))["params"]
    return TrainState.create(
        apply_fn=model.apply, params=params, tx=optax.adamw(digits.LEARNING_RATE)
    )


@jax.jit
def train_step(
    state: TrainState, images: jax.Array, labels: jax.Array
) -> tuple[TrainState, jax.Array]:
    """One step on a batch."""

    def loss_of(params: dict) -> jax.Array:
        fits = state.apply_fn({"params": params}, images)
        return optax.softmax_cross_entropy_with_integer_labels(fits, labels).mean()

    loss, gradients = jax.value_and_grad(loss_of)(state.params)
    return state.apply_gradients(grads=gradients), loss


def restore(path: Path) -> TrainState:
    """The state at ``path``, by Orbax alone."""
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    target = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        jax.eval_shape(create_state),
    )
    with ocp.StandardCheckpointer() as checkpointer:
        return checkpointer.restore(path, target)
