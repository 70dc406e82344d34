"""A hyperparameter that a schedule gives is overwritten at the next step: setting it is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import optax
import pytest

from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import PlanError
from surgery_cli.operations.base import Operation
from surgery_cli.operations.cast import Cast
from surgery_cli.operations.delete import Delete
from surgery_cli.operations.replace import Replace
from surgery_cli.operations.rescale import Rescale
from surgery_cli.operations.set import Set
from surgery_cli.optimizer.detect.survey import survey
from surgery_cli.planning import plan_of
from surgery_cli.resolution import resolve
from tests.optimizer.optax_registry import PARAMS, tree_of

RATE = "opt_state/hyperparams/learning_rate"
STATE = "opt_state/hyperparams_states/learning_rate"


class Stored:
    """A checkpoint that is only a tree."""

    fingerprint = "stored"

    def __init__(self, state: Any) -> None:
        self.tree = tree_of(state)


def injected(learning_rate: Any) -> optax.GradientTransformationExtraArgs:
    return optax.inject_hyperparams(optax.adam)(learning_rate=learning_rate)


def resolved(learning_rate: Any, *edits: Operation) -> Draft:
    state = {"params": PARAMS, "opt_state": injected(learning_rate).init(PARAMS)}
    return resolve(plan_of(edits), Stored(state), lambda _: Stored(state))


SCHEDULE = optax.cosine_decay_schedule(0.1, 100)


@pytest.mark.parametrize(
    "edit",
    [
        Set(at=RATE, to=0.5),
        Replace(at=RATE, with_=0.5),
        Rescale(at=RATE, by=0.5),
        Rescale(at="opt_state/hyperparams", by=0.5),
        Replace(at=RATE, with_="other"),
    ],
)
def test_a_scheduled_number_is_not_set(edit: Operation) -> None:
    with pytest.raises(PlanError, match="would be overwritten") as caught:
        resolved(SCHEDULE, edit)
    (problem,) = caught.value.problems
    assert problem.path == RATE
    assert f"{STATE}/count" in problem.fix
    assert resolved(0.1, edit).changed


@pytest.mark.parametrize(
    "edits",
    [
        (Set(at="opt_state/hyperparams/b1", to=0.5),),
        (Set(at=f"{STATE}/count", to=50),),
        (Cast(to="bfloat16"),),
        (Replace(at="opt_state", with_="other"),),
        (Delete(at=STATE), Set(at=RATE, to=0.5)),
    ],
)
def test_what_no_schedule_overwrites_may_change(edits: tuple[Operation, ...]) -> None:
    assert resolved(SCHEDULE, *edits).changed


def test_optax_overwrites_a_scheduled_number_and_reads_the_count_of_its_schedule() -> None:
    optimizer = injected(SCHEDULE)
    gradients = {"w": np.ones(3, np.float32)}
    state = optimizer.init(gradients)

    def steps(**fields: Any) -> Any:
        return optimizer.update(gradients, state._replace(**fields), gradients)[0]["w"]

    other = {**state.hyperparams, "learning_rate": np.float32(7)}
    np.testing.assert_array_equal(steps(hyperparams=other), steps())
    later = {"learning_rate": state.hyperparams_states["learning_rate"]._replace(count=50)}
    np.testing.assert_allclose(steps(hyperparams_states=later), steps() * 0.5, rtol=1e-5)
    np.testing.assert_array_equal(steps(count=np.int32(50)), steps())


def test_the_count_of_injected_hyperparameters_drives_schedules_in_older_releases_alone() -> None:
    state = injected(SCHEDULE).init(PARAMS)
    older = {name: getattr(state, name) for name in ("count", "hyperparams", "inner_state")}
    for opt_state, drives in ((state, "nothing"), (older, "schedule")):
        clocks = survey(tree_of({"params": PARAMS, "opt_state": opt_state})).clocks
        assert {str(p): c.drives for p, c in clocks.items()}["opt_state/count"] == drives
