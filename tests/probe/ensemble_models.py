"""Plain models of which ensembles are made outside, by `jax.vmap` over their variables; a user's file for the tests."""

import jax.numpy as jnp
from flax import linen as nn
from flax import nnx


class Normed(nn.Module):
    @nn.compact
    def __call__(self, x, train=False):
        x = nn.BatchNorm(use_running_average=not train)(nn.Dense(8)(x))
        return nn.Dense(3)(nn.relu(x))


class NnxDropping(nnx.Module):
    def __init__(self, rngs):
        self.linear = nnx.Linear(4, 8, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        return self.dropout(self.linear(x))


def squared(output, y):
    return jnp.mean((output - y) ** 2)
