"""The table of what optax's states do is what optax does: a sample of it, or all with ``POWERS=all``."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from surgery_cli.optimizer.knowledge import measured
from surgery_cli.optimizer.knowledge.factories import FACTORIES
from surgery_cli.optimizer.knowledge.kinds import _TOLD, by_name
from tests.optimizer.factory_trials import STATES, powers_of, signals_of, table

SEED = int(os.environ.get("ORACLE_SEED", "0"))
BY_HAND = {
    ("cocob", "reward"): "it stays zero until steps gain something",
    ("cocob", "scale"): "a largest value of all steps that starts at a number",
    ("ldog", "max_dist"): "it starts at a share of the param's norm, and of 1",
    ("rprop", "prev_updates"): "it holds signs, of which some are zero",
    ("yogi", "nu"): "its steps go by a sign that depends on its start",
}
"""Fields of states that gradients alone drive, whose rule is more than one power, or does not show on tiny params."""
NEEDS_MORE = {
    "accumulate", "galore", "lbfgs", "linesearch", "mechanic", "momo", "momo_adam", "multi_steps", "sam",
    "schedule_free", "sophia", "zero_nans",
}  # fmt: skip
"""Kinds of state that no factory makes alone, or whose training needs a loss or a function."""


def some(names):
    every = sorted(names)
    if os.environ.get("POWERS") == "all":
        return every
    return [every[n] for n in np.random.default_rng(SEED).permutation(len(every))[:3]]


@pytest.mark.parametrize("kind", some(STATES))
def test_the_powers_of_a_state_are_those_that_it_shows(kind):
    assert powers_of(kind) == measured.POWERS[kind]


@pytest.mark.parametrize("name", some(FACTORIES))
def test_the_signals_of_a_factory_are_those_that_its_states_show(name):
    assert signals_of(name) == measured.SIGNALS.get(name, {})


def test_the_table_is_as_its_program_writes_it():
    written = Path(measured.__file__).read_text()
    assert written == table(measured.POWERS, measured.SIGNALS)


def test_every_field_is_measured_or_named_with_its_reason():
    assert measured.POWERS.keys() == STATES.keys()
    left_out = {
        (kind, field)
        for kind in STATES
        for field in by_name()[kind].fields
        if field not in measured.POWERS[kind]
    }
    assert left_out == BY_HAND.keys()
    assert {kind.name for kind in _TOLD if kind.fields and kind.name not in STATES} == NEEDS_MORE


def test_what_is_measured_is_said_nowhere_by_hand():
    for kind in _TOLD:
        for name in measured.POWERS.get(kind.name, {}):
            field = kind.fields[name]
            if not field.is_params_like:  # those go as the params do, by what the word means
                numbers = (
                    field.of_signal,
                    field.fixed,
                    field.is_even,
                    field.is_per_leaf,
                    field.fresh,
                )
                assert numbers == (0, 0, False, False, 0.0), (kind.name, name)
