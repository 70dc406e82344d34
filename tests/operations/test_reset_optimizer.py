"""Reset-optimizer: slots get the optimizer's own initial values; seen from metadata alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from optax_registry import PARAMS, state_of, tree_of

from surgery_cli.draft import Draft, LeafRef
from surgery_cli.errors import PlanError
from surgery_cli.operations.reset_optimizer import ResetOptimizer
from surgery_cli.operations.slot_steps import FillFresh
from surgery_cli.plan import plan_of
from surgery_cli.resolution import resolve
from surgery_cli.tree.paths import LeafPath


class Stored:
    """A checkpoint that is only a tree."""

    fingerprint = "stored"

    def __init__(self, state: Any) -> None:
        self.tree = tree_of(state)


def resolved(state: Any, *edits: ResetOptimizer, **shared: Any) -> Draft:
    plan = plan_of(edits, **shared)
    return resolve(plan, Stored(state), lambda text: pytest.fail(f"{text} was opened"))


def state(name: str, **more: Any) -> dict[str, Any]:
    return {"params": PARAMS, "opt_state": state_of(name), **more}


def fills(draft: Draft) -> dict[str, float]:
    found = {}
    for path in draft.changed:
        (step,) = draft.leaves[path].steps
        assert isinstance(step.operation, FillFresh)
        found[str(path)] = step.operation.value
    return found


LEAVES = [f"Dense_{i}/{leaf}" for i in (0, 1) for leaf in ("bias", "kernel")]


@pytest.mark.parametrize(
    ("name", "kind", "values"),
    [
        ("adam", None, {"0/mu": 0.0, "0/nu": 0.0}),
        ("yogi", "yogi", {"0/mu": 1e-6, "0/nu": 1e-6}),
        ("adagrad", None, {"0/sum_of_squares": 0.1}),
        ("rmsprop_momentum", None, {"0/nu": 0.0, "2/trace": 0.0}),
    ],
)
def test_every_slot_gets_the_optimizers_own_initial_value(
    name: str, kind: str | None, values: dict[str, float]
) -> None:
    draft = resolved(state(name), ResetOptimizer(), optimizer_kind=kind)
    assert fills(draft) == {
        f"opt_state/{field}/{leaf}": value for field, value in values.items() for leaf in LEAVES
    }


@pytest.mark.parametrize("at", ["params/Dense_1/kernel", "opt_state/0/*/Dense_1/kernel"])
def test_patterns_name_slots_or_their_params(at: str) -> None:
    draft = resolved(state("adam"), ResetOptimizer(at=at))
    assert set(fills(draft)) == {f"opt_state/0/{m}/Dense_1/kernel" for m in ("mu", "nu")}
    assert [(o.leaves, o.twins) for o in draft.outcomes] == [(2, {})]


def test_copies_of_params_take_the_params_values() -> None:
    draft = resolved(state("schedule_free_sgd"), ResetOptimizer())
    path = LeafPath(("opt_state", "z", "Dense_0", "kernel"))
    assert draft.leaves[path].origin == LeafRef("", LeafPath(("params", "Dense_0", "kernel")))
    assert draft.leaves[path].steps == ()


def test_copies_beside_the_optimizer_state_are_not_slots_of_it() -> None:
    draft = resolved(state("adam", ema_params=PARAMS), ResetOptimizer())
    assert not [path for path in fills(draft) if path.startswith("ema_params")]


def test_an_initial_value_that_only_the_script_knows_is_asked_for_and_taken_from_fill() -> None:
    with pytest.raises(PlanError, match="initial value of 'opt_state/0/step_sizes") as caught:
        resolved(state("rprop"), ResetOptimizer())
    assert len(caught.value.problems) == 4
    assert all("`fill`" in problem.fix for problem in caught.value.problems)
    draft = resolved(state("rprop"), ResetOptimizer(fill=0.001))
    assert {path.split("/")[2]: value for path, value in fills(draft).items()} == {
        "step_sizes": 0.001,
        "prev_updates": 0.0,
    }


def test_unknown_parts_of_the_state_are_asked_for_wherever_the_edit_looks() -> None:
    strange = {"params": PARAMS, "opt_state": {"a": state_of("adam"), "b": np.ones((5, 7))}}
    for edit in (ResetOptimizer(), ResetOptimizer(at="opt_state")):
        with pytest.raises(PlanError, match="cannot tell which params 'opt_state/b'") as caught:
            resolved(strange, edit)
        assert "slots:" in caught.value.problems[0].fix


def test_running_numbers_of_the_optimizer_are_named_as_left_alone() -> None:
    draft = resolved(state("momo"), ResetOptimizer())
    (note,) = draft.notes
    assert "'opt_state/barf', 'opt_state/gamma', 'opt_state/lb'" in note


@pytest.mark.parametrize(
    ("tree", "edit", "message"),
    [
        ({"params": PARAMS}, ResetOptimizer(), "names no slot"),
        (state("adam", step=np.int32(3)), ResetOptimizer(at="step"), "names no slot"),
        (state("adam"), ResetOptimizer(optimizer="keep"), "takes no `optimizer`"),
        (state("rprop"), ResetOptimizer(fill=float("nan")), "`fill` is nan"),
    ],
)
def test_an_edit_without_a_slot_or_with_a_wrong_setting_is_refused(
    tree: Any, edit: ResetOptimizer, message: str
) -> None:
    with pytest.raises(PlanError, match=message):
        resolved(tree, edit)


def test_a_tree_without_optimizer_state_may_be_said_to_be_fine() -> None:
    assert resolved({"params": PARAMS}, ResetOptimizer(optional=True)).changed == []
