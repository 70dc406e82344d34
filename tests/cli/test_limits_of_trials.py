"""What a trial of an optimizer cannot show: too many steps, another shape than on disk, or more time than there is."""

from __future__ import annotations

import subprocess
import sys

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from surgery_cli.script import optimizer_trial

PARAMS = {"w": np.full((6, 5), 0.5, np.float32), "b": np.full(5, 0.25, np.float32)}


def trained(transformation, factor=1.0, steps=4):
    """Params and state after a few steps, had all params been ``factor`` times as large all along."""
    draws = np.random.default_rng(0)
    params = jax.tree.map(lambda p: p * np.float32(factor), PARAMS)
    state = transformation.init(params)
    update = jax.jit(transformation.update)
    for _ in range(steps):
        gradients = jax.tree.map(
            lambda p: (draws.normal(0, 1e-2, p.shape) / factor).astype("f4"), PARAMS
        )
        _, state = update(gradients, state, params)
    return {"params": params, "opt_state": state}


def save(path, tree):
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, tree)
    return path


@pytest.mark.parametrize("least", [2, 5, 6])
def test_moments_that_are_factored_on_disk_or_in_the_trial_alone_are_settled_by_a_call(
    surgery, tmp_path, least
):
    make = {"min_dim_size_to_factor": least, "multiply_by_parameter_scale": False}
    source = save(tmp_path / "source", trained(optax.adafactor(1e-3, **make)))
    call = f"adafactor(1e-3, min_dim_size_to_factor={least}, multiply_by_parameter_scale=False)"
    result = surgery(
        "rescale", source, tmp_path / "new", "params", "--by", "3", "--optimizer-kind", call, "--json",
    )  # fmt: skip
    assert result.code == 0, result.err
    assert "assumed" not in result.err
    assert not [note for note in result.document["notes"] if "taken for" in note]
    wanted = trained(optax.adafactor(1e-3, **make), 3.0)
    with ocp.StandardCheckpointer() as checkpointer:
        found = checkpointer.restore(tmp_path / "new", wanted)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-7 * np.abs(theirs).max())


def test_an_accumulation_over_more_steps_than_are_tried_is_named(surgery, tmp_path):
    source = save(tmp_path / "source", trained(optax.MultiSteps(optax.adam(1e-3), 100), steps=101))
    command = ("rescale", source, tmp_path / "new", "params/w", "--by", "3", "--dry-run")
    call = ("--optimizer-kind", "MultiSteps(adam(1e-3), 100)", "--optimizer", "transform")
    refused = surgery(*command, *call)
    assert refused.code == 2
    assert "zero in 64 steps, as where gradients are accumulated over more" in refused.err
    assert "add `--optimizer-kind NAME`" in refused.err
    assert "--like-init" not in refused.err
    settled = surgery(*command, "--optimizer-kind", "adam", "--optimizer", "transform")
    assert settled.code == 0, settled.err


SCRIPT = """
import time

import jax
import jax.numpy as jnp
import optax
from flax.training.train_state import TrainState


def endless(gradients, state, params=None):
    _, more = jax.lax.while_loop(
        lambda n: n[0] > 0, lambda n: (n[0] * 3 % 7 + 1, n[1] + 1.0), (jnp.int32(1), jnp.float32(0))
    )
    return gradients, jax.tree.map(lambda g: g + more, gradients)


def slow(gradients, state, params=None):
    time.sleep(3)
    return gradients, state


def state_of(update):
    params = {"w": jnp.zeros((6, 5)), "b": jnp.zeros(5)}
    transformation = optax.GradientTransformation(lambda p: jax.tree.map(jnp.zeros_like, p), update)
    return TrainState.create(apply_fn=None, params=params, tx=transformation)


def endless_state():
    return state_of(endless)


def slow_state():
    return state_of(slow)
"""


@pytest.fixture
def source(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    tree = {"step": 3, "params": PARAMS, "opt_state": PARAMS}
    return save(tmp_path / "source", tree)


def test_an_optimizer_that_takes_too_long_is_said_to_and_its_slots_are_kept(
    surgery, source, tmp_path, monkeypatch
):
    monkeypatch.setattr(optimizer_trial, "MOST_SECONDS", 0.5)
    like = f"{tmp_path / 'script.py'}:slow_state"
    result = surgery(
        "rescale", source, tmp_path / "new", "params/w", "--by", "2", "--like-init", like, "--json"
    )
    assert result.code == 0, result.err
    assert "cannot be tried out: it has not ended after" in " ".join(result.document["notes"])
    (edited,) = result.document["leaves"]
    assert edited["path"] == "params/w"


LIMITED = """
import sys
from surgery_cli.script import optimizer_trial
from surgery_cli.__main__ import main

optimizer_trial.MOST_SECONDS = 1
main()
"""


def test_the_program_ends_beside_an_optimizer_that_does_not(source, tmp_path):
    like = f"{tmp_path / 'script.py'}:endless_state"
    edit = ("rescale", source, tmp_path / "new", "params/w", "--by", "2", "--like-init", like)
    command = [sys.executable, "-c", LIMITED, *map(str, edit)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert "it has not ended after 1 second" in ended.stdout
    assert "verified" in ended.stdout
