"""The sample checkpoints are what their README says, by Orbax's own restore."""

from pathlib import Path

import digits
import jax
import numpy as np
import pytest
import resume

SAMPLES = Path(resume.__file__).parent
NAMES = ["digits_standard", "digits_manager", "digits_v1"]


@pytest.fixture(scope="module")
def test_split():
    return digits.splits()[1]


@pytest.mark.parametrize("name", NAMES)
def test_each_sample_restores_into_its_scripts_target_above_95_percent(name, test_split):
    state = resume.restore(SAMPLES / name)

    assert int(state.step) == 500
    assert int(state.opt_state[0].count) == 500
    assert digits.accuracy(state, test_split) > 0.95


def test_the_three_samples_hold_the_same_values():
    first, *others = (jax.tree.leaves(resume.restore(SAMPLES / name)) for name in NAMES)

    assert len(first) == 26  # step, count, and 8 leaves each of params, mu, nu
    for other in others:
        for a, b in zip(first, other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_the_managers_first_step_is_less_trained_than_its_last(test_split):
    early = resume.restore(SAMPLES / "digits_manager", step=250)
    late = resume.restore(SAMPLES / "digits_manager")

    assert int(early.step) == 250
    assert digits.accuracy(early, test_split) < digits.accuracy(late, test_split)


def test_training_goes_on_from_a_sample(test_split):
    training, _ = digits.splits()
    state, loss = digits.train(resume.restore(SAMPLES / "digits_standard"), training, steps=3)

    assert int(state.step) == 503
    assert loss < 0.5
    assert digits.accuracy(state, test_split) > 0.9


@pytest.mark.parametrize("name", NAMES)
def test_each_sample_is_smaller_than_a_megabyte(name):
    assert sum(f.stat().st_size for f in (SAMPLES / name).rglob("*") if f.is_file()) < 1_000_000
