"""Reset-optimizer: slots get the optimizer's own initial values; seen from metadata alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from surgery_cli.draft.effect import constant_after
from surgery_cli.draft.expression import LeafRef
from surgery_cli.draft.kernels.fill import Fill
from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import PlanError
from surgery_cli.operations import reset_optimizer
from surgery_cli.operations.reset_optimizer import ResetOptimizer
from surgery_cli.planning import plan_of
from surgery_cli.resolution import resolve
from surgery_cli.script.pytrees import stored_leaves
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind
from tests.optimizer.optax_registry import OPTIMIZERS, PARAMS, params_for, state_of, tree_of


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
        if draft.slots.get(path) and draft.slots[path].takes_param:
            continue
        (edit,) = draft.leaves[path].edits
        assert edit.name == "fill_fresh"
        assert draft.leaves[path].recipe.kernel == Fill(edit.effect.to)
        found[str(path)] = edit.effect.to
    return found


LEAVES = [f"Dense_{i}/{leaf}" for i in (0, 1) for leaf in ("bias", "kernel")]


@pytest.mark.parametrize(
    ("name", "kind", "values"),
    [
        ("adam", None, {"0/mu": 0.0, "0/nu": 0.0}),
        ("yogi", "yogi", {"0/mu": 1e-6, "0/nu": 1e-6}),
        ("adagrad", "adagrad", {"0/sum_of_squares": 0.1}),
        ("rmsprop_momentum", "rmsprop", {"0/nu": 0.0, "2/trace": 0.0}),
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


@pytest.mark.parametrize("except_", ["params/Dense_1", "params/Dense_1/*", "opt_state/0/*/Dense_1"])
def test_slots_of_a_param_that_is_an_exception_go_on(except_: str) -> None:
    draft = resolved(state("adam"), ResetOptimizer(except_=except_))
    assert set(fills(draft)) == {
        f"opt_state/0/{m}/Dense_0/{leaf}" for m in ("mu", "nu") for leaf in ("bias", "kernel")
    }


def test_copies_of_params_take_the_params_values() -> None:
    draft = resolved(state("schedule_free_sgd"), ResetOptimizer())
    path = LeafPath(("opt_state", "z", "Dense_0", "kernel"))
    assert draft.leaves[path].home == LeafRef("", LeafPath(("params", "Dense_0", "kernel")))
    assert draft.leaves[path].edits == ()


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


@pytest.mark.parametrize(("name", "field"), [("adagrad", "sum_of_squares"), ("rmsprop", "nu")])
def test_a_start_that_a_setting_decides_is_asked_for_or_said_to_be_taken_for_optax_s(
    name: str, field: str
) -> None:
    with pytest.raises(PlanError, match=f"initial value of 'opt_state/0/{field}") as caught:
        resolved(state(name), ResetOptimizer())
    assert "`fill`" in caught.value.problems[0].fix
    assert "NAME" in caught.value.problems[0].fix

    (outcome,) = resolved(state(name), ResetOptimizer(), optimizer_kind=name).outcomes
    ((node, taken),) = outcome.assumed
    assert str(node) == "opt_state/0"
    assert "optax's default" in taken.taken_for


def test_moments_of_adam_restart_at_0_and_it_is_said_that_yogi_s_do_not() -> None:
    (outcome,) = resolved(state("adam"), ResetOptimizer()).outcomes
    ((_, taken),) = outcome.assumed
    assert "yogi" in taken.unless
    (said,) = resolved(state("adam"), ResetOptimizer(), optimizer_kind="adam").outcomes
    assert said.assumed == ()


def test_unknown_parts_of_the_state_are_asked_for_wherever_the_edit_looks() -> None:
    strange = {"params": PARAMS, "opt_state": {"a": state_of("adam"), "b": np.ones((5, 7))}}
    for edit in (ResetOptimizer(), ResetOptimizer(at="opt_state")):
        with pytest.raises(PlanError, match="cannot tell which params 'opt_state/b'") as caught:
            resolved(strange, edit)
        assert "slots:" in caught.value.problems[0].fix


def test_numbers_that_start_from_a_setting_are_named_as_left_alone() -> None:
    draft = resolved(state("momo"), ResetOptimizer())
    (note,) = [note for note in draft.notes if "left as they are" in note]
    assert note.endswith(": 'opt_state/lb'")


@pytest.mark.parametrize(
    "name",
    [
        "dog",
        "dowg",
        "schedule_free_sgd",
        "prodigy",
        "dadapt_adamw",
        "momo",
        "mechanic_adam",
        "lbfgs",
    ],
)
def test_running_numbers_start_with_all_slots_as_optax_starts_them(name: str) -> None:
    draft = resolved(state(name), ResetOptimizer(), optimizer_kind=None)
    slots = {str(path) for path in draft.slots}
    numbers = {path: value for path, value in fills(draft).items() if path not in slots}
    fresh = OPTIMIZERS[name]().init(PARAMS)
    assert numbers
    for path, value in numbers.items():
        own: Any = fresh
        for key in path.split("/")[1:]:
            own = own[int(key)] if key.isdigit() else getattr(own, key)
        assert np.array_equal(own, np.full(np.shape(own), value, np.float32)), path
    (note,) = [note for note in draft.notes if "restart with its slots" in note]
    assert all(f"'{path}'" in note for path in numbers)


WITHOUT_SLOTS = {"fromage", "noisy_sgd", "polyak_sgd", "sgd", "sign_sgd", "flatten_adam", "galore"}
ASKS_FOR_FILL = {"rprop", "ldog", "snapshot_updates"}
HIDDEN_KINDS = {
    "yogi": "yogi",
    "adagrad": "adagrad",
    "schedule_free_adamw": "schedule_free_adamw",
    **{name: "rmsprop" for name in OPTIMIZERS if name.startswith("rmsprop")},
}


@pytest.mark.parametrize("name", sorted({*OPTIMIZERS} - WITHOUT_SLOTS - ASKS_FOR_FILL))
def test_a_full_reset_is_what_optax_begins_with_or_says_what_is_left(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reset_optimizer, "_SHOWN_NUMBERS", 99)
    params, fresh = params_for(name), OPTIMIZERS[name]().init(params_for(name))
    trained = {"params": params, "opt_state": fresh}
    everything = ResetOptimizer(clocks=True)
    draft = resolved(trained, everything, optimizer_kind=HIDDEN_KINDS.get(name))
    leaves = {
        LeafPath(("opt_state", *path)): leaf for path, leaf in stored_leaves(fresh)
    }  # paths as Orbax stores them
    for path, recipe in draft.leaves.items():
        if path not in leaves or not recipe.spec.has_array or recipe.spec.kind is LeafKind.KEY:
            continue
        if not recipe.edits:
            takes_param = path in draft.slots and draft.slots[path].takes_param
            placeholder = path in draft.slots and recipe.spec.shape == (1,)
            said = any(f"'{path}'" in note for note in draft.notes)
            assert takes_param or placeholder or said, path
            continue
        (edit,) = recipe.edits
        value = np.full(np.shape(leaves[path]), constant_after(edit.effect, None))
        assert np.array_equal(np.asarray(leaves[path], np.float32), value.astype(np.float32)), path


def test_running_numbers_go_on_while_one_slot_does() -> None:
    part = ResetOptimizer(except_="params/Dense_1/bias")
    assert "opt_state/numerator_weighted" not in fills(resolved(state("prodigy"), part))


def test_schedules_that_go_on_are_named() -> None:
    draft = resolved(state("adamw_sched"), ResetOptimizer(clocks=True))
    assert (
        "this schedule goes on: 'opt_state/2/count'; `set` with `to: 0` restarts one" in draft.notes
    )


@pytest.mark.parametrize(
    ("tree", "edit", "message"),
    [
        ({"params": PARAMS}, ResetOptimizer(), "no state of an optimizer is known"),
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


MOMENTS = {"m": PARAMS, "v": PARAMS}


@pytest.mark.parametrize(
    ("state_of_it", "says", "helps"),
    [
        ({**MOMENTS, "step": np.int32(3)}, "'m' and 'v' are like the params", "{m: {power: -1,"),
        ({"adam": {**MOMENTS, "t": np.int32(3)}}, "'adam/m' and 'adam/v' are", "{adam/m: {power"),
        ({"momentum": PARAMS, "ema": PARAMS}, "'momentum' is like the params", "{momentum: {power"),
        ({"ema": PARAMS, "step": np.int32(3)}, "but for what is known as a copy", "--like-init"),
        ({"step": np.int32(3)}, "nothing in it mirrors the params", "--like-init"),
    ],
)
@pytest.mark.parametrize("at", [(), "**"])
def test_where_no_state_is_known_the_refusal_says_what_tells(
    state_of_it: Any, says: str, helps: str, at: Any
) -> None:
    with pytest.raises(PlanError) as refused:
        resolved({"params": PARAMS, **state_of_it}, ResetOptimizer(at=at))
    (problem,) = refused.value.problems
    assert "no state of an optimizer is known in the tree" in problem.what
    assert says in problem.why
    assert helps in problem.fix
    assert "leave out the pattern" not in str(refused.value)


def test_a_tree_without_optimizer_state_may_be_said_to_be_fine() -> None:
    assert resolved({"params": PARAMS}, ResetOptimizer(optional=True)).changed == []
