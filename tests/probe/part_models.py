"""A compact model whose parts exist only while it runs; a user's file for the tests."""

import jax
import jax.numpy as jnp
from flax import linen as nn


class Features(nn.Module):
    @nn.compact
    def __call__(self, x, train=False):
        x = nn.relu(nn.Dense(6, name="dense")(x))
        return nn.Dropout(0.5, deterministic=not train)(x)

    def doubled(self, x):
        return 2 * self(x)


class Layer(nn.Module):
    @nn.compact
    def __call__(self, x, _=None):
        return jnp.tanh(nn.Dense(4, name="inner")(x)), None


class Borrowing(nn.Module):
    """Calls a module that belongs to the model around it."""

    other: nn.Module

    def __call__(self, x):
        return self.other(x)


class Scaled(nn.Module):
    factor: jax.Array

    def __call__(self, x):
        return self.factor * x


def negated(variables):
    return jax.tree.map(jnp.negative, variables)


class Compact(nn.Module):
    @nn.compact
    def __call__(self, x, train=False):
        x = Features(name="features")(x, train=train)
        x = nn.remat(nn.Dense)(4, name="saved")(x)
        x = nn.jit(nn.Dense)(4, name="jitted")(x)
        layers = nn.scan(Layer, variable_axes={"params": 0}, split_rngs={"params": True}, length=3)
        x, _ = layers(name="layers")(x, None)
        x = nn.map_variables(nn.Dense, "params", negated, init=True)(4, name="negated")(x)
        own = nn.Dense(4, name="own")
        x = Borrowing(own, name="borrowing")(own(x))
        x = Scaled(x.mean(), name="scaled")(x)
        return nn.Dense(2, name="head")(x)
