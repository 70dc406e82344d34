"""Clocks restart with every slot that they drive, or not at all; what a reset does under a running one is said."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import optax
import pytest

from surgery_cli.draft.kernels.fill import Fill
from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import PlanError
from surgery_cli.operations.base import Operation
from surgery_cli.operations.delete import Delete
from surgery_cli.operations.keep import Keep
from surgery_cli.operations.reinit import Reinit
from surgery_cli.operations.rename import Rename
from surgery_cli.operations.replace import Replace
from surgery_cli.operations.rescale import Rescale
from surgery_cli.operations.reset_optimizer import ResetOptimizer
from surgery_cli.operations.set import Set
from surgery_cli.optimizer.follow.adam_steps import NOTHING, most_apart
from surgery_cli.optimizer.follow.bias_correction import restarts
from surgery_cli.optimizer.follow.clocks import filled_with
from surgery_cli.optimizer.follow.decays import Decays
from surgery_cli.planning import plan_of
from surgery_cli.resolution import resolve
from surgery_cli.tree.paths import LeafPath
from tests.optimizer.optax_registry import PARAMS, state_of, tree_of

COUNT = "opt_state/0/count"


class Stored:
    """A checkpoint that is only a tree."""

    fingerprint = "stored"

    def __init__(self, state: Any) -> None:
        self.tree = tree_of(state)


def resolved(name: str, *edits: Operation, kind: str | None = None, **shared: Any) -> Draft:
    state = {"params": PARAMS, "opt_state": state_of(name), "step": np.int32(7)}
    plan = plan_of(edits, optimizer_kind=kind, **shared)
    return resolve(plan, Stored(state), lambda text: pytest.fail(f"{text} was opened"))


def changed(draft: Draft) -> dict[str, Any]:
    return {str(path): [edit.name for edit in draft.leaves[path].edits] for path in draft.changed}


ALL = Reinit(at="params", init="zeros", optimizer="reset")


@pytest.mark.parametrize("start", [Set(at=COUNT, to=0), Replace(at=COUNT, with_=0)])
def test_a_clock_alone_does_not_restart_and_the_refusal_offers_warm(start: Operation) -> None:
    with pytest.raises(PlanError, match="would start anew") as caught:
        resolved("adam", start)
    (problem,) = caught.value.problems
    assert problem.path == COUNT
    assert "8 slots" in problem.why
    assert "8 of them" in problem.why
    assert "optimizer: warm" in problem.fix


def test_one_slot_that_goes_on_is_enough_to_refuse() -> None:
    part = Reinit(at="params", init="zeros", optimizer="reset", except_="params/Dense_1/bias")
    with pytest.raises(PlanError, match="Dense_1/bias' and 1 more go on"):
        resolved("adam", part, Set(at=COUNT, to=0))


@pytest.mark.parametrize(
    "edits",
    [
        (ALL, Set(at=COUNT, to=0)),
        (Set(at=COUNT, to=0), ALL),
        (ResetOptimizer(), Set(at=COUNT, to=0)),
        (ResetOptimizer(clocks=True),),
        (Replace(at="opt_state/0/mu", with_=0), Replace(at="opt_state/0/nu", with_=0),
         Replace(at=COUNT, with_=0)),
        (ResetOptimizer(), Rescale(at="params", by=0.5), Set(at=COUNT, to=0)),
        (Rename(at="opt_state", to="optimizer"), ResetOptimizer(), Set(at="optimizer/0/count", to=0)),
    ],
)  # fmt: skip
def test_a_clock_restarts_with_all_its_slots_in_any_order(edits: tuple[Operation, ...]) -> None:
    draft = resolved("adam", *edits, kind="adam")
    assert any(path.endswith("0/count") for path in changed(draft))


def test_a_clock_may_be_set_to_any_other_value() -> None:
    assert changed(resolved("adam", Set(at=COUNT, to=1000))) == {COUNT: ["set"]}


def test_a_warm_slot_has_not_restarted() -> None:
    warm = Reinit(at="params", init="zeros", optimizer="warm")
    with pytest.raises(PlanError, match="4 of them are not reset"):
        resolved("adam", warm, Set(at=COUNT, to=0))


def test_a_clock_that_starts_at_one_restarts_at_one() -> None:
    path = LeafPath(("opt_state", "step_count"))
    draft = resolved("schedule_free_sgd", ResetOptimizer(clocks=True))
    assert filled_with(draft.leaves[path]) == 1


def test_a_first_step_flag_restarts_as_true() -> None:
    draft = resolved("optimistic_gd", ResetOptimizer(clocks=True))
    path = LeafPath(("opt_state", 0, "is_initial_step"))
    assert draft.leaves[path].recipe.kernel == Fill(True)


@pytest.mark.parametrize("path", ["step", "opt_state/2/count"])
def test_a_schedule_and_a_counter_that_drives_no_slot_restart_alone(path: str) -> None:
    draft = resolved("adamw_sched", Set(at=path, to=0))
    assert list(changed(draft)) == [path]


def test_a_partial_reset_with_clocks_is_refused() -> None:
    with pytest.raises(PlanError, match="would start anew") as caught:
        resolved("adam", ResetOptimizer(at="params/Dense_0", clocks=True))
    (problem,) = caught.value.problems
    assert problem.fix.startswith("take `clocks: true` out, or reset all its slots")
    assert "warm" not in problem.fix
    assert resolved("adam", ResetOptimizer(at="params/Dense_0")).changed
    assert resolved("adam", ResetOptimizer(clocks=True)).changed


def test_the_schedule_of_multisteps_goes_on_and_every_clock_that_does_not_is_named() -> None:
    draft = resolved("multisteps", ResetOptimizer(clocks=True))
    clocks = ["opt_state/mini_step", "opt_state/inner_opt_state/0/count"]
    assert [str(path) for path in draft.changed if draft.clock_at(path)] == clocks
    (gone,) = [note for note in draft.notes if "back to the start" in note]
    assert gone == f"these step counters go back to the start: '{clocks[0]}', '{clocks[1]}'"
    (goes_on,) = [note for note in draft.notes if "schedule goes on" in note]
    assert "'opt_state/gradient_step'" in goes_on


def test_a_restart_of_squares_under_a_running_clock_is_found_and_a_whole_restart_is_none() -> None:
    (found,) = restarts(resolved("adam", Reinit(at="params", init="zeros", optimizer="reset")))
    assert str(found.clock) == COUNT
    assert {slot.name for slot in found.slots} == {"nu"}
    assert restarts(resolved("adam", ResetOptimizer(clocks=True))) == []
    assert restarts(resolved("adam", Reinit(at="params", init="zeros"))) == []
    assert restarts(resolved("sgd_momentum", ResetOptimizer())) == []


def test_the_announced_factor_is_what_adam_does() -> None:
    factor, after = most_apart(50_000, 50_000, Decays(0.9, 0.999), NOTHING, max)
    optimizer = optax.adam(1.0, eps=0.0)
    params = {"w": np.ones(1, np.float32)}
    inner, *rest = optimizer.init(params)
    state = (inner._replace(count=np.int32(50_000)), *rest)
    steps = []
    for _ in range(30):
        update, state = optimizer.update({"w": np.ones(1, np.float32)}, state, params)
        steps.append(abs(float(update["w"][0])))
    assert max(steps) == pytest.approx(factor, rel=1e-4)
    assert steps.index(max(steps)) + 1 == after
    assert steps[0] == pytest.approx(3.1623, rel=1e-4)


def test_the_announcement_names_count_factor_and_remedy() -> None:
    (found,) = restarts(resolved("adam", ALL))
    sentence = found.sentence(100_000)
    assert sentence is not None
    assert "'opt_state/0/count' is at 100,000" in sentence
    assert "up to 6.6 learning rates" in sentence
    assert "optimizer: warm" in sentence
    assert found.sentence(0) is None


def test_a_state_without_its_params_keeps_its_counts_and_says_why() -> None:
    alone = Stored({"opt_state": state_of("adam")})
    with pytest.raises(PlanError, match="slots that it drives are not known"):
        resolve(plan_of([Set(at=COUNT, to=0)]), alone, pytest.fail)
    assert changed(resolve(plan_of([Set(at=COUNT, to=5)]), alone, pytest.fail))
    with pytest.raises(PlanError, match="the tree has no such params"):
        resolve(plan_of([ResetOptimizer()]), alone, pytest.fail)


def test_a_count_whose_state_leaves_out_every_param_may_restart() -> None:
    state = state_of("adam")
    inner = state[0]._replace(mu={"Dense_0": None, "Dense_1": None}, nu=None)
    tree = Stored({"params": PARAMS, "opt_state": (inner, *state[1:])})
    draft = resolve(plan_of([Set(at=COUNT, to=0)]), tree, pytest.fail)
    assert list(changed(draft)) == [COUNT]


@pytest.mark.parametrize(
    ("edit", "remedy", "follower"),
    [
        (
            ALL,
            "`optimizer: warm` for the edit",
            [Reinit(at="params", init="zeros", optimizer="warm")],
        ),
        (ResetOptimizer(), "`clocks: true`", [ResetOptimizer(clocks=True)]),
        (
            ResetOptimizer(at="params/Dense_0"),
            "of all its slots (no pattern) with `clocks: true`",
            [ResetOptimizer(clocks=True)],
        ),
        (
            Rescale(at="params/Dense_0", by=0),
            "`reset-optimizer` of all its slots",
            [Rescale(at="params/Dense_0", by=0), ResetOptimizer(clocks=True)],
        ),
    ],
)
def test_the_remedy_for_a_restart_is_one_that_the_edit_takes(
    edit: Operation, remedy: str, follower: list[Operation]
) -> None:
    (found,) = restarts(resolved("adam", edit, kind="adam"))
    assert remedy in (found.sentence(1000) or "")
    assert restarts(resolved("adam", *follower, kind="adam")) == []


@pytest.mark.parametrize("at", [COUNT, "step"])
@pytest.mark.parametrize("edit", [Set(to=-1), Replace(with_=-5)])
def test_a_counter_is_not_negative(edit: Operation, at: str) -> None:
    """Adam at -1 divides by zero in its next step; a loop at -5 repeats steps that it has not taken."""
    with pytest.raises(PlanError, match="cannot be -") as caught:
        resolved("adam", msgspec.structs.replace(edit, at=at))
    assert caught.value.problems[0].path == at


def test_a_counter_from_a_donor_is_the_counter_still() -> None:
    state = {"params": PARAMS, "opt_state": state_of("adam"), "step": np.int32(7)}
    edits = (Replace(at=COUNT, with_="donor"), ResetOptimizer(at="opt_state/0/nu", clocks=True))
    with pytest.raises(PlanError, match="would start anew"):
        resolve(plan_of(edits), Stored(state), lambda text: Stored(state))


# --- a clock that goes while its slots stay -----------------------------------------------------------------------

MOMENTS = "opt_state/0/mu", "opt_state/0/nu"
DRIVEN = {
    "adam": MOMENTS,
    "adamw_sched": MOMENTS,
    "nadamw": MOMENTS,
    "lamb": MOMENTS,
    "adamax": MOMENTS,
    "yogi": MOMENTS,
    "amsgrad": (*MOMENTS, "opt_state/0/nu_max"),
    "adabelief": MOMENTS,
    "adan": ("opt_state/0/m", "opt_state/0/v", "opt_state/0/n"),
}
"""By optax's own code: the fields of the state that its update corrects by the count beside them."""


def lost(draft: Draft) -> list[str]:
    return [note for note in draft.notes if "how many steps are in" in note]


@pytest.mark.parametrize("name", DRIVEN)
@pytest.mark.parametrize("loss", ["deleted", "by a glob", "kept without", "moved before"])
def test_a_clock_that_goes_is_said_with_the_slots_that_count_by_it(name: str, loss: str) -> None:
    nodes, count = DRIVEN[name], "t" if name == "adan" else "count"
    edits: dict[str, tuple[Operation, ...]] = {
        "deleted": (Delete(at=f"opt_state/0/{count}"),),
        "by a glob": (Delete(at=f"**/{count}"),),
        "kept without": (Keep(at=("params", *nodes)),),
        "moved before": (Rename(at="opt_state", to="tx"), Delete(at=f"tx/0/{count}")),
    }
    (note,) = lost(resolved(name, *edits[loss]))
    assert note.startswith(f"'opt_state/0/{count}' goes, and ")
    for node in nodes:
        assert f"'{node.replace('opt_state', 'tx') if loss == 'moved before' else node}'" in note


@pytest.mark.parametrize(
    ("name", "edits"),
    [
        ("adam", (Rename(at="opt_state", to="tx"),)),
        ("adam", (Rename(at=COUNT, to="elsewhere"),)),
        ("adam", (Delete(at="opt_state"),)),
        ("adam", (Delete(at=(COUNT, *MOMENTS)),)),
        ("adam", (Delete(at=COUNT), Delete(at=MOMENTS))),
        ("adam", (Keep(at="params"),)),
        ("adam", (ALL, Delete(at=COUNT))),
        ("adamw_sched", (Delete(at="opt_state/2"),)),
        ("adam", (Delete(at="step"),)),
        ("adam", (Delete(at="params/Dense_0"),)),
    ],
)
def test_of_a_clock_that_no_slot_misses_nothing_is_said(
    name: str, edits: tuple[Operation, ...]
) -> None:
    assert lost(resolved(name, *edits)) == []


def test_slots_that_go_with_the_clock_are_not_said_to_stay() -> None:
    (note,) = lost(resolved("adam", Delete(at=COUNT), Delete(at=f"{MOMENTS[0]}/**")))
    assert MOMENTS[0] not in note
    assert f"'{MOMENTS[1]}'" in note
