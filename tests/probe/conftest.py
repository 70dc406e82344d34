"""Checkpoints for probes, written by Orbax."""

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax.training.train_state import TrainState

from tests.probe.edited_models import MLP
from tests.probe.looking import linen_variables

X = np.random.default_rng(5).standard_normal((4, 5), np.float32)


def save(path, tree):
    """Write a tree as training scripts do."""
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, tree)
    return str(path)


@pytest.fixture(scope="session")
def params():
    return linen_variables(MLP(), X, scale=0.5)["params"]


@pytest.fixture(scope="session")
def saved(tmp_path_factory, params):
    """A TrainState with AdamW's state, EMA params beside it."""
    folder = tmp_path_factory.mktemp("probe")
    state = TrainState.create(apply_fn=MLP().apply, params=params, tx=optax.adamw(1e-3))
    tree = {
        "step": state.step,
        "params": state.params,
        "opt_state": state.opt_state,
        "ema_params": jax.tree.map(lambda p: p * 0.5, params),
    }
    return save(folder / "saved", tree)


@pytest.fixture(scope="session")
def batch(tmp_path_factory):
    path = tmp_path_factory.mktemp("batch") / "batch.npz"
    np.savez(path, x=X, y=np.ones((4, 3), np.float32))
    return str(path)
