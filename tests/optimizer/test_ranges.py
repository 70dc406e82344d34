"""Hyperparameters that optax keeps in its state are not set to what the optimizer has no meaning for."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import PlanError
from surgery_cli.operations.reinit import Reinit
from surgery_cli.operations.replace import Replace
from surgery_cli.operations.rescale import Rescale
from surgery_cli.operations.set import Set
from surgery_cli.optimizer.detect.survey import survey
from surgery_cli.planning import plan_of
from surgery_cli.resolution import resolve
from tests.optimizer.optax_registry import PARAMS, state_of, tree_of

NODE = "opt_state/hyperparams"


class Stored:
    """A checkpoint that is only a tree."""

    fingerprint = "stored"

    def __init__(self, state: Any) -> None:
        self.tree = tree_of(state)


def edited(name: str, to: float, optimizer: optax.GradientTransformation) -> Draft:
    state = {"params": PARAMS, "opt_state": optimizer.init(PARAMS)}
    plan = plan_of([Set(at=f"{NODE}/{name}", to=to)])
    return resolve(plan, Stored(state), lambda text: pytest.fail(f"{text} was opened"))


def scaled(path: str, by: float, state: Any) -> Draft:
    """What comes of a number of the optimizer's own times ``by``; every stored number is read as 0.5."""
    tree = {"params": PARAMS, "opt_state": state}
    plan = plan_of([Rescale(at=path, by=by)])
    return resolve(plan, Stored(tree), pytest.fail, number=lambda *_: 0.5)


def adam(**given: float) -> Any:
    return optax.inject_hyperparams(optax.adam)(learning_rate=0.1, **given)


@pytest.mark.parametrize(
    ("name", "to"),
    [("learning_rate", -1), ("b1", 1.5), ("b2", 1), ("b1", -0.1), ("eps", -1e-8)],
)
def test_a_hyperparameter_out_of_its_range_is_refused(name: str, to: float) -> None:
    with pytest.raises(PlanError, match="cannot be") as caught:
        edited(name, to, adam(b1=0.9, b2=0.999, eps=1e-8))
    (problem,) = caught.value.problems
    assert problem.path == f"{NODE}/{name}"
    assert problem.fix.startswith("set it to ")


@pytest.mark.parametrize(
    ("name", "to"),
    [("learning_rate", 0), ("learning_rate", 3), ("b1", 0), ("b2", 0.9999), ("eps", 0)],
)
def test_one_within_its_range_is_set(name: str, to: float) -> None:
    draft = edited(name, to, adam(b1=0.9, b2=0.999, eps=1e-8))
    assert [str(path) for path in draft.changed] == [f"{NODE}/{name}"]


def test_what_is_refused_makes_no_number_of_a_step() -> None:
    """Optax itself: with `b2` at 1 the bias correction divides by 0."""
    optimizer = adam(b1=0.9, b2=0.999)
    state = optimizer.init({"w": jnp.ones(2)})
    state.hyperparams["b2"] = jnp.asarray(1.0)
    updates, _ = optimizer.update({"w": jnp.ones(2)}, state, {"w": jnp.ones(2)})
    assert not np.isfinite(np.asarray(updates["w"])).all()


@pytest.mark.parametrize(("name", "by"), [("learning_rate", -1), ("b1", 2), ("eps", -0.5)])
def test_a_factor_that_takes_a_hyperparameter_out_of_its_range_is_refused(
    name: str, by: float
) -> None:
    state = adam(b1=0.9, b2=0.999, eps=1e-8).init(PARAMS)
    with pytest.raises(PlanError, match="cannot be") as caught:
        scaled(f"{NODE}/{name}", by, state)
    assert [problem.path for problem in caught.value.problems] == [f"{NODE}/{name}"]
    assert scaled(f"{NODE}/{name}", 0.9, state).changed


OWN = {
    "dog": {"max_dist", "sum_sq_norm_grads"},
    "dowg": {"estim_sq_dist", "weighted_sq_norm_grads"},
    "schedule_free_sgd": {"b1", "weight_sum", "max_lr"},
    "mechanic_adam": {"m", "v", "s"},
    "prodigy": {"estim_lr"},
    "dadapt_adamw": {"estim_lr"},
    "reduce_on_plateau": {"scale"},
    "backtracking": {"learning_rate"},
    "momo": set(),  # averages of a loss, and a bound below it
    "lbfgs": {"learning_rate"},
}


@pytest.mark.parametrize("name", OWN)
def test_a_number_that_is_never_negative_is_not_made_so(name: str) -> None:
    tree = tree_of({"params": PARAMS, "opt_state": state_of(name)})
    found = survey(tree).nonnegative
    assert {str(path[-1]) for path in found} == OWN[name]
    for at in map(str, found):
        negative: tuple[Any, ...] = (
            Replace(at=at, with_=-1),
            Rescale(at=at, by=-1),
            Reinit(at=at, init="normal"),
        )
        for edit in negative:
            with pytest.raises(PlanError, match="would become negative"):
                resolve(
                    plan_of([edit]),
                    Stored({"params": PARAMS, "opt_state": state_of(name)}),
                    pytest.fail,
                )
        assert scaled(at, 0.5, state_of(name)).changed
