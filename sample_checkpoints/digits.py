"""The seeds of the samples: a small CNN, the 8x8 digits of scikit-learn, and one step of training."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax.training.train_state import TrainState
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

SEED = 0
BATCH = 128
LEARNING_RATE = 4e-3


class CNN(nn.Module):
    """Two convolutions, two dense layers; ``x: [batch, 8, 8, 1]`` -> log-probabilities ``[batch, classes]``."""

    classes: int = 10

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = nn.Conv(features=16, kernel_size=(3, 3))(x)
        x = nn.relu(x)
        x = nn.avg_pool(x, window_shape=(2, 2), strides=(2, 2))
        x = nn.Conv(features=32, kernel_size=(3, 3))(x)
        x = nn.relu(x)
        x = nn.avg_pool(x, window_shape=(2, 2), strides=(2, 2))
        x = x.reshape((x.shape[0], -1))
        x = nn.Dense(features=64)(x)
        x = nn.relu(x)
        x = nn.Dense(features=self.classes)(x)
        return nn.log_softmax(x)


class Split(NamedTuple):
    """Images ``[n, 8, 8, 1]`` in 0 to 1 and labels ``[n]``."""

    images: np.ndarray
    labels: np.ndarray


def splits() -> tuple[Split, Split]:
    """The training and the test split: 1437 and 360 digits."""
    digits = load_digits()
    images = (digits.images / 16.0).astype(np.float32)[..., None]
    train_x, test_x, train_y, test_y = train_test_split(
        images, digits.target, test_size=360, random_state=SEED, stratify=digits.target
    )
    return Split(train_x, train_y), Split(test_x, test_y)


def create_state(classes: int = 10) -> TrainState:
    """A fresh training state: the CNN's parameters and AdamW's two moments."""
    model = CNN(classes)
    params = model.init(jax.random.key(SEED), jnp.ones((1, 8, 8, 1)))["params"]
    return TrainState.create(apply_fn=model.apply, params=params, tx=optax.adamw(LEARNING_RATE))


@functools.cache
def abstract_state(classes: int = 10) -> TrainState:
    """The same state as shapes and dtypes on this machine's first device: the target of a restore."""
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        jax.eval_shape(lambda: create_state(classes)),
    )


def cross_entropy(
    params: dict, state: TrainState, images: jax.Array, labels: jax.Array
) -> jax.Array:
    """The mean over images of minus the log-probability of the label."""
    log_probabilities = state.apply_fn({"params": params}, images)
    return -jnp.take_along_axis(log_probabilities, labels[:, None], axis=1).mean()


@jax.jit
def train_step(state: TrainState, data: Split) -> tuple[TrainState, jax.Array]:
    """One step on a batch that depends on the step's number alone, so that a resumed run sees the same batches."""
    key = jax.random.fold_in(jax.random.key(SEED), state.step)
    rows = jax.random.choice(key, data.labels.shape[0], (BATCH,), replace=False)
    loss, gradients = jax.value_and_grad(cross_entropy)(
        state.params, state, data.images[rows], data.labels[rows]
    )
    return state.apply_gradients(grads=gradients), loss


@functools.partial(jax.jit, static_argnums=1)
def _log_probabilities(params: dict, model: CNN, images: jax.Array) -> jax.Array:
    return model.apply({"params": params}, images)


def accuracy(state: TrainState, data: Split) -> float:
    """Share of digits that are read right, 0 to 1."""
    predicted = _log_probabilities(state.params, CNN(), data.images).argmax(axis=1)
    return float((predicted == data.labels).mean())


def train(state: TrainState, data: Split, steps: int) -> tuple[TrainState, float]:
    """``steps`` further steps; returns the new state and the loss on the last batch (NaN without a step)."""
    on_device, loss = jax.device_put(data), jnp.nan
    for _ in range(steps):
        state, loss = train_step(state, on_device)
    return state, float(loss)
