"""Small models for probes of checkpoints on disk; a user's file for the tests."""

import jax
import jax.numpy as jnp
from flax import linen as nn


class MLP(nn.Module):
    """Homogeneous between its layers: a factor on `hidden` and its inverse on `out` change nothing."""

    features: int = 8

    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Dense(self.features, name="hidden", use_bias=False)(x))
        return nn.Dense(3, name="out", use_bias=False)(x)


class RenamedMLP(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Dense(8, name="encoder", use_bias=False)(x))
        return nn.Dense(3, name="head", use_bias=False)(x)


class Block(nn.Module):
    @nn.compact
    def __call__(self, x, _):
        return jnp.tanh(nn.Dense(4, name="inner")(x)), None


class Unrolled(nn.Module):
    @nn.compact
    def __call__(self, x):
        for number in range(3):
            x, _ = Block(name=f"block_{number}")(x, None)
        return x


class Stacked(nn.Module):
    @nn.compact
    def __call__(self, x):
        block = nn.scan(Block, variable_axes={"params": 0}, split_rngs={"params": True}, length=3)
        return block(name="blocks")(x, None)[0]


class LogNorm(nn.Module):
    """Divides by the logarithm of a scale: a scale of 1 gives infinities, a negative one NaN."""

    @nn.compact
    def __call__(self, x):
        scale = self.param("scale", nn.initializers.constant(2.0), (x.shape[-1],))
        logs = jnp.log(scale)
        return x / logs


class Deep(nn.Module):
    """Three times a layer and a `LogNorm`."""

    @nn.compact
    def __call__(self, x):
        for number in range(3):
            x = nn.Dense(4, name=f"dense_{number}")(x)
            x = LogNorm(name=f"norm_{number}")(x)
        return nn.log_softmax(x)


class Step(nn.Module):
    @nn.compact
    def __call__(self, x, _):
        x = LogNorm(name="norm")(nn.Dense(4, name="dense")(x))
        return x, None


class DeepScan(nn.Module):
    @nn.compact
    def __call__(self, x):
        step = nn.scan(Step, variable_axes={"params": 0}, split_rngs={"params": True}, length=3)
        return step(name="steps")(x, None)[0]


class MaskedStep(nn.Module):
    """Makes NaN in every iteration, and throws them away but in iteration 2."""

    @nn.compact
    def __call__(self, x, number):
        x = nn.Dense(4, name="dense")(x)
        return jnp.where(number == 2, jnp.sqrt(-1 - jnp.abs(x)), x), None


class MaskedScan(nn.Module):
    @nn.compact
    def __call__(self, x):
        step = nn.scan(MaskedStep, variable_broadcast="params", split_rngs={"params": False})
        return step(name="steps")(x, jnp.arange(4))[0]


class WithConstants(nn.Module):
    @nn.compact
    def __call__(self, x):
        return {"y": nn.Dense(3, name="out")(x), "count": 3, "nothing": None}


class Masked(nn.Module):
    """Attention scores with -inf behind a mask, as they should be."""

    @nn.compact
    def __call__(self, x):
        scores = nn.Dense(4)(x)
        return nn.softmax(jnp.where(jnp.arange(4) < 2, scores, -jnp.inf))


class RootGradient(nn.Module):
    """Finite forwards, but the derivative of the root at 0 is not."""

    @nn.compact
    def __call__(self, x):
        return jnp.sqrt(nn.Dense(4, use_bias=False)(x))


def squared(output, y):
    return jnp.mean((output - y) ** 2)


def wants_weight(output, weight):
    return (output * weight).sum()


def no_number(output):
    return output


def make(width):
    return MLP(features=width)


def abstract():
    return jax.eval_shape(lambda: jnp.zeros(3))
