"""A language model over the letters of a pangram, in the layouts that real ones have: what the cookbook edits.

A `Layout` says how the model stands in its checkpoint: its layers in a row or stacked for `scan`, along one axis or
another; queries, keys and values in one kernel or in three; how many letters, positions and experts there are.
"""

import functools
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax import linen as nn
from flax.training.train_state import TrainState

SEED = 0
TEXT = "the quick brown fox jumps over the lazy dog "
WIDTH, HEADS, HIDDEN = 8, 2, 16
BATCH, LENGTH, DECAY = 4, 16, 0.9


class Layout(NamedTuple):
    """How a model stands in its checkpoint."""

    depth: int = 3
    scan_axis: int | None = None
    is_fused: bool = True
    letters: int = 28
    positions: int = LENGTH
    experts: int = 0
    layer: str = "layers"


class Parallel(nn.Module):
    """Kernels side by side; ``x: [..., experts, d_in]`` -> ``[..., experts, d_out]``."""

    experts: int
    features: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        initial = nn.initializers.lecun_normal(batch_axis=0)
        kernel = self.param("kernel", initial, (self.experts, x.shape[-1], self.features))
        return jnp.einsum("...ei,eio->...eo", x, kernel)


class MLP(nn.Module):
    """Two dense layers, or experts whose outputs are mixed as a router says; ``x: [batch, length, WIDTH]``."""

    experts: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        if not self.experts:
            x = nn.gelu(nn.Dense(HIDDEN, use_bias=False, name="up")(x))
            return nn.Dense(WIDTH, use_bias=False, name="down")(x)
        shares = nn.softmax(nn.Dense(self.experts, use_bias=False, name="router")(x))
        each = jnp.repeat(x[..., None, :], self.experts, axis=-2)
        each = nn.gelu(Parallel(self.experts, HIDDEN, name="up")(each))
        each = Parallel(self.experts, WIDTH, name="down")(each)
        return jnp.einsum("...e,...ed->...d", shares, each)


class Attention(nn.Module):
    """Causal attention; ``x: [batch, length, WIDTH]``."""

    is_fused: bool

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        if self.is_fused:
            three = jnp.split(nn.Dense(3 * WIDTH, use_bias=False, name="qkv")(x), 3, axis=-1)
        else:
            three = [nn.Dense(WIDTH, use_bias=False, name=n)(x) for n in ("query", "key", "value")]
        heads = (y.reshape(*y.shape[:-1], HEADS, WIDTH // HEADS) for y in three)
        mixed = jax.nn.dot_product_attention(*heads, is_causal=True)
        return nn.Dense(WIDTH, use_bias=False, name="out")(mixed.reshape(x.shape))


class Layer(nn.Module):
    """Attention and MLP behind norms; takes and gives what `scan` wants."""

    layout: Layout

    @nn.compact
    def __call__(self, x: jax.Array, _: None = None) -> tuple[jax.Array, None]:
        norm = functools.partial(nn.LayerNorm, use_bias=False)
        x += Attention(self.layout.is_fused, name="attention")(norm(name="norm_1")(x))
        return x + MLP(self.layout.experts, name="mlp")(norm(name="norm_2")(x)), None


class Letters(nn.Module):
    """``letters: [batch, length]`` -> the logits of the next ones, ``[batch, length, layout.letters]``."""

    layout: Layout

    @nn.compact
    def __call__(self, letters: jax.Array) -> jax.Array:
        layout, small = self.layout, nn.initializers.normal(0.3)
        x = nn.Embed(layout.letters, WIDTH, name="embed")(letters)
        places = self.param("positions", small, (layout.positions, WIDTH))
        x += places[: x.shape[1]]
        if layout.scan_axis is None:
            for n in range(layout.depth):
                x, _ = Layer(layout, name=f"{layout.layer}_{n}")(x)
        else:
            axes = {"params": layout.scan_axis}
            scanned = nn.scan(Layer, axes, split_rngs={"params": True}, length=layout.depth)
            x, _ = scanned(layout, name=layout.layer)(x, None)
        x = nn.LayerNorm(use_bias=False, name="norm")(x)
        return nn.Dense(layout.letters, use_bias=False, name="head")(x)


class State(TrainState):
    """A training state with a moving average of the params."""

    ema: Any


def optimizer() -> optax.GradientTransformation:
    """AdamW behind a clip of the global norm, with a learning rate that warms up and falls."""
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1e-2, 10, 1000)
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule))


def create_state(
    layout: Layout = Layout(), tx: optax.GradientTransformation | None = None
) -> State:
    """A fresh training state."""
    model = Letters(layout)
    params = model.init(jax.random.key(SEED), jnp.zeros((1, LENGTH), int))["params"]
    return State.create(apply_fn=model.apply, params=params, tx=tx or optimizer(), ema=params)


@functools.cache
def abstract_state(
    layout: Layout = Layout(), tx: optax.GradientTransformation | None = None
) -> State:
    """The same state as shapes and dtypes on this machine's first device: the target of a restore."""
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        jax.eval_shape(lambda: create_state(layout, tx)),
    )


def batch(step: int) -> tuple[np.ndarray, np.ndarray]:
    """Letters and the ones that follow them, ``[BATCH, LENGTH]`` each, by the step's number alone."""
    codes = np.frombuffer(TEXT.encode(), np.uint8).astype(np.int32)
    codes = np.where(codes == ord(" "), 0, codes - ord("a") + 1)
    starts = np.random.default_rng([SEED, step]).integers(0, len(codes), BATCH)
    rows = codes[(starts[:, None] + np.arange(LENGTH + 1)) % len(codes)]
    return rows[:, :-1], rows[:, 1:]


def cross_entropy(
    params: dict, state: State, letters: jax.Array, following: jax.Array
) -> jax.Array:
    """The mean over letters of minus the log-probability of the following one."""
    logits = state.apply_fn({"params": params}, letters)
    return optax.softmax_cross_entropy_with_integer_labels(logits, following).mean()


@jax.jit
def train_step(state: State, letters: jax.Array, following: jax.Array) -> tuple[State, jax.Array]:
    """One step on a batch."""
    loss, gradients = jax.value_and_grad(cross_entropy)(state.params, state, letters, following)
    state = state.apply_gradients(grads=gradients)
    ema = jax.tree.map(lambda old, new: DECAY * old + (1 - DECAY) * new, state.ema, state.params)
    return state.replace(ema=ema), loss


def train(state: State, steps: int) -> tuple[State, float]:
    """``steps`` further steps; returns the new state and the loss on the last batch (NaN without a step)."""
    loss = jnp.nan
    for _ in range(steps):
        state, loss = train_step(state, *batch(int(state.step)))
    return state, float(loss)


def restore(path: Path, layout: Layout = Layout(), tx: Any = None) -> State:
    """The state of the newest step at ``path``, or of the checkpoint there, by Orbax alone."""
    target = abstract_state(layout, tx)
    if (path / "_METADATA").exists():
        with ocp.StandardCheckpointer() as checkpointer:
            return checkpointer.restore(path, target)
    options = ocp.CheckpointManagerOptions(read_only=True)
    with ocp.CheckpointManager(path, options=options) as manager:
        return manager.restore(manager.latest_step(), args=ocp.args.StandardRestore(target))
