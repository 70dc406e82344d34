# ruff: noqa: RET504 - the documents' own lines
"""The models of the documents on extracting intermediate values, and the same in NNX; a user's file for the tests."""

from collections.abc import Sequence

import jax.numpy as jnp
from flax import linen as nn
from flax import nnx


class CNN(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Conv(features=32, kernel_size=(3, 3))(x)
        x = nn.relu(x)
        x = nn.avg_pool(x, window_shape=(2, 2), strides=(2, 2))
        x = nn.Conv(features=64, kernel_size=(3, 3))(x)
        x = nn.relu(x)
        x = nn.avg_pool(x, window_shape=(2, 2), strides=(2, 2))
        x = x.reshape((x.shape[0], -1))
        x = nn.Dense(features=256)(x)
        x = nn.relu(x)
        x = nn.Dense(features=10)(x)
        x = nn.log_softmax(x)
        return x


class SowCNN(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Conv(features=32, kernel_size=(3, 3))(x)
        x = nn.relu(x)
        x = nn.avg_pool(x, window_shape=(2, 2), strides=(2, 2))
        x = nn.Conv(features=64, kernel_size=(3, 3))(x)
        x = nn.relu(x)
        x = nn.avg_pool(x, window_shape=(2, 2), strides=(2, 2))
        x = x.reshape((x.shape[0], -1))
        self.sow("intermediates", "features", x)
        x = nn.Dense(features=256)(x)
        x = nn.relu(x)
        x = nn.Dense(features=10)(x)
        x = nn.log_softmax(x)
        return x


class SowCNN2(nn.Module):
    @nn.compact
    def __call__(self, x):
        mod = SowCNN(name="SowCNN")
        return mod(x) + mod(x)


class Features(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Conv(features=32, kernel_size=(3, 3))(x)
        x = nn.relu(x)
        x = nn.avg_pool(x, window_shape=(2, 2), strides=(2, 2))
        x = nn.Conv(features=64, kernel_size=(3, 3))(x)
        x = nn.relu(x)
        x = nn.avg_pool(x, window_shape=(2, 2), strides=(2, 2))
        x = x.reshape((x.shape[0], -1))
        return x


class Classifier(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Dense(features=256)(x)
        x = nn.relu(x)
        x = nn.Dense(features=10)(x)
        x = nn.log_softmax(x)
        return x


class RefactoredCNN(nn.Module):
    def setup(self):
        self.features = Features()
        self.classifier = Classifier()

    def __call__(self, x):
        x = self.features(x)
        x = self.classifier(x)
        return x


class Sequential(nn.Module):
    layers: Sequence[nn.Module]

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def SeqCNN():  # noqa: N802 - the document's own name
    return Sequential(
        [
            nn.Conv(features=32, kernel_size=(3, 3)),
            nn.relu,
            lambda x: nn.avg_pool(x, window_shape=(2, 2), strides=(2, 2)),
            nn.Conv(features=64, kernel_size=(3, 3)),
            nn.relu,
            lambda x: nn.avg_pool(x, window_shape=(2, 2), strides=(2, 2)),
            lambda x: x.reshape((x.shape[0], -1)),
            nn.Dense(features=256),
            nn.relu,
            nn.Dense(features=10),
            nn.log_softmax,
        ]
    )


class Model(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Dense(8)(x))
        x = self.perturb("hidden", x)
        x = nn.Dense(2)(x)
        x = self.perturb("logits", x)
        return x


def mean_squared(output, y):
    return jnp.mean((output - y) ** 2)


class AutoEncoder(nn.Module):
    """Has a method `encode`, for the filter by method."""

    def setup(self):
        self.encoder = nn.Dense(3)
        self.decoder = nn.Dense(8)

    def encode(self, x):
        return nn.relu(self.encoder(x))

    def __call__(self, x):
        return self.decoder(self.encode(x))


class NnxCNN(nnx.Module):
    """The CNN, in NNX."""

    def __init__(self, *, rngs):
        self.conv1 = nnx.Conv(1, 32, (3, 3), rngs=rngs)
        self.conv2 = nnx.Conv(32, 64, (3, 3), rngs=rngs)
        self.dense1 = nnx.Linear(3136, 256, rngs=rngs)
        self.dense2 = nnx.Linear(256, 10, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.conv1(x))
        x = nnx.avg_pool(x, window_shape=(2, 2), strides=(2, 2))
        x = nnx.relu(self.conv2(x))
        x = nnx.avg_pool(x, window_shape=(2, 2), strides=(2, 2))
        x = x.reshape((x.shape[0], -1))
        self.sow(nnx.Intermediate, "features", x)
        x = nnx.relu(self.dense1(x))
        return nnx.log_softmax(self.dense2(x))


class NnxTwice(nnx.Module):
    def __init__(self, *, rngs):
        self.inner = NnxCNN(rngs=rngs)

    def __call__(self, x):
        return self.inner(x) + self.inner(x)


class NnxAutoEncoder(nnx.Module):
    def __init__(self, *, rngs):
        self.encoder = nnx.Linear(8, 3, rngs=rngs)
        self.decoder = nnx.Linear(3, 8, rngs=rngs)

    def encode(self, x):
        return nnx.relu(self.encoder(x))

    def __call__(self, x):
        return self.decoder(self.encode(x))
