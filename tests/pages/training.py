"""The judges of recipes: Orbax restores a result with the target of the changed model, and training goes on."""

from typing import Any, NamedTuple

import digits
import jax
import letters
import numpy as np
import orbax.checkpoint as ocp
import patches
import resume
import towers
from flax import nnx

from tests.pages.recipes import REPOSITORY

SAMPLES = REPOSITORY / "sample_checkpoints"

FAST = {"xla_backend_optimization_level": 0}
"""Programs that run once: compiling them is what costs."""

_COMPILED = {}


class Resumed(NamedTuple):
    """A state as it was restored, its logits on a batch, and the state after one step of its training."""

    state: Any
    logits: np.ndarray
    after: Any


def _resumed(state, step, *batch):
    def logits_and_step(state, *batch):
        inputs = batch[0] if len(batch) > 1 else batch[0].images
        return state.apply_fn({"params": state.params}, inputs), step(state, *batch)

    like = (
        *((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves((state, batch))),
        jax.tree.structure((state, batch)),
    )
    if (step, like) not in _COMPILED:
        lowered = jax.jit(logits_and_step).lower(state, *batch)
        _COMPILED[step, like] = lowered.compile(FAST)
    logits, (after, loss) = _COMPILED[step, like](state, *batch)
    assert np.isfinite(loss)
    assert int(after.step) == int(state.step) + 1
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after))
    return Resumed(*jax.device_get((state, logits, after)))


def letters_resumed(path, layout=letters.Layout(), tx=None):
    """Of the layout that the run has, a step of its training; of others and other optimizers, one of the optimizer."""
    is_usual = layout == letters.Layout() and tx is None
    step = letters.train_step.__wrapped__ if is_usual else _optimizer_step
    return _resumed(letters.restore(path, layout, tx), step, *letters.batch(100))


def letters_go_on(state, *batch):
    return _resumed(state, letters.train_step.__wrapped__, *(batch or letters.batch(100)))


def _optimizer_step(state, *_):
    """A step with the params for gradients: those of the model would be half of what is to be compiled."""
    return state.apply_gradients(grads=state.params), 0.0


def digits_resumed(path, classes=10):
    step = digits.train_step.__wrapped__ if classes == 10 else _optimizer_step
    return _resumed(resume.restore(path, classes=classes), step, digits.splits()[0])


def towers_resumed(path):
    return _resumed(towers.restore(path), towers.train_step.__wrapped__, *patches.batch(0))


def patches_resumed(path, grid=4):
    """The model as it was restored, its optimizer, and the loss of one step on copies of both."""
    model, optimizer = patches.restore(path, grid)
    ahead = nnx.clone((model, optimizer))
    loss = patches.train_step(*ahead, *patches.batch(100, grid))
    assert np.isfinite(loss)
    return model, optimizer, ahead


def sample(name, step=None):
    """The state of the digits that a sample holds."""
    return jax.device_get(resume.restore(SAMPLES / name, step))


def restored(path, target):
    """What Orbax restores of the newest step, or of the checkpoint at ``path``, with that target."""
    if (path / "_METADATA").exists():
        with ocp.StandardCheckpointer() as checkpointer:
            return jax.device_get(checkpointer.restore(path, target))
    with ocp.CheckpointManager(path, options=ocp.CheckpointManagerOptions(read_only=True)) as m:
        found = m.restore(m.latest_step(), args=ocp.args.StandardRestore(target))
    return jax.device_get(found)


def started(tx, params):
    """What the optimizer begins with."""
    return jax.device_get(jax.jit(tx.init, compiler_options=FAST)(params))


def same(a, b):
    """That two trees hold the same arrays, bit for bit."""
    jax.tree.map(np.testing.assert_array_equal, a, b)


def close(a, b, atol=2e-5):
    """That two arrays are what two programs of the same function give."""
    np.testing.assert_allclose(a, b, rtol=0, atol=atol)


def zero(tree):
    return all(not np.asarray(leaf).any() for leaf in jax.tree.leaves(tree))
