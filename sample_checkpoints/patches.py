"""A tiny vision transformer without attention, in Flax NNX, whose learning rate stands in the optimizer's state."""

from pathlib import Path

import digits
import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax import nnx

WIDTH, PATCH = 8, 2
BATCH = 64


class Patches(nnx.Module):
    """Patches with positions, an MLP, a head; ``x: [batch, 2 * grid, 2 * grid, 1]`` -> logits ``[batch, 10]``."""

    def __init__(self, grid: int, rngs: nnx.Rngs):
        self.patch = nnx.Conv(1, WIDTH, (PATCH, PATCH), PATCH, padding="VALID", rngs=rngs)
        self.positions = nnx.Param(0.3 * jax.random.normal(rngs.params(), (1, grid * grid, WIDTH)))
        self.up = nnx.Linear(WIDTH, 4 * WIDTH, rngs=rngs)
        self.head = nnx.Linear(4 * WIDTH, 10, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = self.patch(x).reshape(x.shape[0], -1, WIDTH)
        return self.head(nnx.gelu(self.up(x + self.positions[...])).mean(axis=1))


def create(grid: int = 4) -> tuple[Patches, nnx.Optimizer]:
    """A fresh model for images of ``grid`` patches a side, and its optimizer."""
    model = Patches(grid, nnx.Rngs(0))
    tx = optax.inject_hyperparams(optax.adamw)(learning_rate=1e-2)
    return model, nnx.Optimizer(model, tx, wrt=nnx.Param)


def tree(model: Patches, optimizer: nnx.Optimizer) -> dict:
    """What is saved."""
    return {"model": nnx.state(model), "optimizer": nnx.state(optimizer)}


def batch(step: int, grid: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Images, enlarged to ``grid`` patches a side, and labels, by the step's number alone."""
    training, _ = digits.splits()
    rows = np.random.default_rng(step).integers(0, len(training.labels), BATCH)
    size = np.ones((1, grid // 4, grid // 4, 1), np.float32)
    return np.kron(training.images[rows], size), training.labels[rows]


@nnx.jit
def train_step(
    model: Patches, optimizer: nnx.Optimizer, images: jax.Array, labels: jax.Array
) -> jax.Array:
    """One step on a batch; gives the loss."""

    def loss_of(model: Patches) -> jax.Array:
        logits = model(images)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    loss, gradients = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, gradients)
    return loss


def restore(path: Path, grid: int = 4) -> tuple[Patches, nnx.Optimizer]:
    """The model and the optimizer at ``path``, by Orbax alone."""
    model, optimizer = nnx.eval_shape(lambda: create(grid))
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    target = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        tree(model, optimizer),
    )
    with ocp.StandardCheckpointer() as checkpointer:
        found = checkpointer.restore(path, target)
    nnx.update(model, found["model"])
    nnx.update(optimizer, found["optimizer"])
    return model, optimizer
