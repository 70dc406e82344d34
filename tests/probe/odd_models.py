"""Models on which the frameworks' own capture fails or says nothing; a user's file for the tests."""

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import nnx


class Block(nn.Module):
    @nn.compact
    def __call__(self, x, _):
        return x + nn.Dense(4, name="inner")(x), None


class Scanned(nn.Module):
    @nn.compact
    def __call__(self, x):
        block = nn.scan(Block, variable_axes={"params": 0}, split_rngs={"params": True}, length=3)
        return block(name="blocks")(x, None)[0]


class Remat(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.remat(nn.Dense)(4, name="first")(x)
        return nn.remat(nn.Dense)(4, name="second")(nn.relu(x))


class Jitted(nn.Module):
    """Two layers that are equal but for their names."""

    @nn.compact
    def __call__(self, x):
        dense = nn.jit(nn.Dense)
        return dense(4, name="second")(dense(4, name="first")(x))


class Vmapped(nn.Module):
    """An ensemble of three."""

    @nn.compact
    def __call__(self, x):
        dense = nn.vmap(
            nn.Dense, variable_axes={"params": 0}, split_rngs={"params": True},
            in_axes=None, axis_size=3,
        )  # fmt: skip
        return dense(4, name="members")(x).mean(axis=0)


class Branching(nn.Module):
    """Branches that call different modules, of different numbers and shapes."""

    @nn.compact
    def __call__(self, x):
        wide, narrow = nn.Dense(6, name="wide"), nn.Dense(2, name="narrow")
        out = nn.Dense(4, name="out")

        def positive(_, x):
            return out(wide(x).sum(axis=1, keepdims=True) * x)

        def negative(_, x):
            return narrow(x).sum(axis=1, keepdims=True) * x

        if self.is_initializing():
            positive(self, x)
            return negative(self, x)
        return nn.cond(x.sum() > 0, positive, negative, self, x)


class Recurrent(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.RNN(nn.SimpleCell(features=4, name="cell"), name="rnn")(x)


class RawVmap(nn.Module):
    @nn.compact
    def __call__(self, x):
        dense = nn.Dense(4, name="dense")
        dense(x[0])  # made outside, as Flax wants it
        return jax.vmap(dense)(x)


class RawScan(nn.Module):
    @nn.compact
    def __call__(self, x):
        dense = nn.Dense(4, name="dense")
        dense(x)

        def step(carry, _):
            return jnp.tanh(dense(carry)), None

        return jax.lax.scan(step, x, None, length=3)[0]


class Tied(nn.Module):
    def setup(self):
        self.embed = nn.Embed(7, 4)

    def __call__(self, ids):
        return self.embed.attend(self.embed(ids))


class Pair(nn.Module):
    @nn.compact
    def __call__(self, x):
        return {"h": nn.Dense(4)(x), "both": (x, 2 * x)}


class Structured(nn.Module):
    @nn.compact
    def __call__(self, x):
        found = Pair(name="pair")(x)
        return found["h"] + found["both"][1]


class Whiling(nn.Module):
    @nn.compact
    def __call__(self, x):
        dense = nn.Dense(4, name="dense")
        dense(x)

        def more(state):
            return state[0] < 3

        def step(state):
            return state[0] + 1, jnp.tanh(dense(state[1]))

        return jax.lax.while_loop(more, step, (0, x))[1]


class Normed(nn.Module):
    axis_name: str | None = None

    @nn.compact
    def __call__(self, x, train: bool = False):
        x = nn.Dense(4)(x)
        x = nn.BatchNorm(use_running_average=not train, axis_name=self.axis_name)(x)
        return nn.Dropout(0.5, deterministic=not train)(x)


class Scaled(nn.Module):
    @nn.compact
    def __call__(self, x, *, scale):
        return scale * nn.Dense(4)(x)


class Base(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.linear = nnx.Linear(4, 4, rngs=rngs)

    def __call__(self, x):
        return nnx.relu(self.linear(x))


class Derived(Base):
    """Inherits `__call__`."""


class Deriving(Base):
    """Calls the inherited `__call__` from its own."""

    def __call__(self, x):
        return 2 * super().__call__(x)


class Inheriting(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.derived = Derived(rngs)
        self.deriving = Deriving(rngs)

    def __call__(self, x):
        return self.deriving(self.derived(x))


class NnxScanned(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        @nnx.split_rngs(splits=3)
        @nnx.vmap
        def make(rngs: nnx.Rngs):
            return Base(rngs)

        self.blocks = make(rngs)

    def __call__(self, x):
        @nnx.scan(in_axes=(0, nnx.Carry), out_axes=nnx.Carry)
        def forward(block, x):
            return block(x)

        return forward(self.blocks, x)


class NnxVmapped(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        @nnx.split_rngs(splits=3)
        @nnx.vmap
        def make(rngs: nnx.Rngs):
            return Base(rngs)

        self.members = make(rngs)

    def __call__(self, x):
        @nnx.vmap(in_axes=(0, None))
        def forward(member, x):
            return member(x)

        return forward(self.members, x).mean(axis=0)


class NnxListed(nnx.Module):
    """Layers in a list, a tied layer, a jitted call, dropout and running averages."""

    def __init__(self, rngs: nnx.Rngs):
        self.layers = nnx.List([nnx.Linear(4, 4, rngs=rngs) for _ in range(2)])
        self.again = self.layers[0]
        self.norm = nnx.BatchNorm(4, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        for layer in self.layers:
            x = nnx.jit(lambda m, x: m(x))(layer, x)
        return self.dropout(self.norm(self.again(x)))
