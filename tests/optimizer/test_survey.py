"""What is found of real optax states, held against the measured facts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surgery_cli.errors import PlanError
from surgery_cli.optimizer.detect.survey import OptimizerSurvey, survey
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, TreeSpec
from tests.optimizer.optax_registry import (
    OPTIMIZERS,
    leaves_of,
    params_for,
    state_of,
    train_state,
    tree_of,
)

EXPECTED: dict[str, dict[str, dict[str, Any]]] = json.loads(
    (Path(__file__).parent / "expected_slots.json").read_text()
)
REFUSED = {"galore", "flatten_adam"}
FOUND = sorted(set(OPTIMIZERS) - REFUSED)


def expected_leaves(name: str, tree: TreeSpec) -> dict[str, tuple[LeafPath, dict[str, Any]]]:
    """Slot path to (param, facts), for the slots that the state has."""
    found = {}
    stored = {str(p): spec for p, spec in tree.items()}
    for pattern, facts in EXPECTED[name].items():
        for param, spec in leaves_of(params_for(name)).items():
            text = f"opt_state/{pattern}".replace("{p}", str(param))
            texts = [text.replace("{axis}", str(axis)) for axis in range(len(spec.shape))]
            texts = [t.replace("{ri}", half) for t in texts for half in ("real", "imaginary")]
            for t in texts:
                if t in stored and stored[t].kind is not LeafKind.EMPTY:
                    found[t] = (LeafPath(("params", *param)), facts)
    return found


def found_slots(result: OptimizerSurvey) -> dict[str, Any]:
    return {str(p): slot for p, slot in result.slots.items() if slot.relation != "hole"}


@pytest.mark.parametrize("name", FOUND)
def test_every_slot_is_found_and_no_power_is_wrong(name: str) -> None:
    tree = train_state(name)
    result = survey(tree)
    expected = expected_leaves(name, tree)
    slots = found_slots(result)
    assert slots.keys() == expected.keys()
    for path, (param, facts) in expected.items():
        slot = slots[path]
        assert slot.param == param, path
        if slot.power is not None:
            assert (slot.power, slot.is_even) == (facts["power"], facts["even"]), path
        else:
            assert slot.settled_by
    assert result.params_roots == (("params",),)


@pytest.mark.parametrize("name", FOUND)
def test_holes_of_masked_states_belong_to_params(name: str) -> None:
    tree = train_state(name)
    for path, slot in survey(tree).slots.items():
        if slot.relation == "hole":
            assert tree[path].kind is LeafKind.EMPTY
            assert any(leaf.is_below(slot.param) for leaf in tree)


NAMED_KIND = {
    "adabelief": "adabelief",
    "adam": "adam",
    "adamw": "adamw",
    "clip_adam": "adam",
    "l2_before_adam": "adam",
    "adamax": "adamax",
    "adamaxw": "adamaxw",
    "adopt": "adopt",
    "yogi": "yogi",
    "lars": "lars",
    "lamb": "lamb",
    "muon": "muon",
    "rmsprop_momentum": "rmsprop",
    "rmsprop_centered_momentum": "rmsprop",
    "adafactor_momentum": "adafactor",
    "adafactor_noparamscale": "adafactor-without-parameter-scale",
    "cocob": "cocob",
    "madgrad": "madgrad",
    "adadelta": "adadelta",
    "optimistic_adam_v2": "optimistic_adam_v2",
    "agc_sgd": "sgd",
    "multisteps_clip_inject": "adamw",
}


@pytest.mark.parametrize("name", sorted(NAMED_KIND))
def test_the_named_factory_settles_every_power(name: str) -> None:
    tree = train_state(name)
    slots = found_slots(survey(tree, kind=NAMED_KIND[name]))
    for path, (_, facts) in expected_leaves(name, tree).items():
        assert (slots[path].power, slots[path].is_even) == (facts["power"], facts["even"]), path


@pytest.mark.parametrize(
    "name", sorted({*NAMED_KIND, "adagrad", "rprop", "schedule_free_sgd", "sm3"})
)
def test_known_fresh_values_are_those_of_init(name: str) -> None:
    state = {"params": params_for(name), "opt_state": state_of(name)}
    values = {str(p): v for p, v in _values(state).items()}
    for path, slot in found_slots(survey(tree_of(state), kind=NAMED_KIND.get(name))).items():
        if slot.takes_param:
            np.testing.assert_array_equal(values[path], values[str(slot.param)])
        elif slot.fresh is not None:
            np.testing.assert_allclose(values[path], slot.fresh, err_msg=path)


def _values(tree: Any, path: LeafPath = LeafPath()) -> dict[LeafPath, Any]:
    if hasattr(tree, "_asdict"):
        tree = tree._asdict()
    if isinstance(tree, dict | list | tuple):
        items = tree.items() if isinstance(tree, dict) else enumerate(tree)
        return {p: v for k, x in items for p, v in _values(x, path / (k,)).items()}
    return {path: tree}


@pytest.mark.parametrize(
    ("name", "clocks"),
    [
        ("adam", {"opt_state/0/count": "bias_correction"}),
        (
            "adamw_sched",
            {"opt_state/0/count": "bias_correction", "opt_state/2/count": "schedule"},
        ),
        ("lion", {"opt_state/0/count": "nothing"}),
        ("adafactor", {"opt_state/0/count": "decay"}),
        ("novograd", {"opt_state/0/count": "first_step"}),
        ("optimistic_gd", {"opt_state/0/is_initial_step": "first_step"}),
        (
            "multisteps",
            {
                "opt_state/mini_step": "cycle",
                "opt_state/gradient_step": "schedule",
                "opt_state/inner_opt_state/0/count": "bias_correction",
            },
        ),
        (
            "inject_hyperparams",
            {
                "opt_state/count": "nothing",
                "opt_state/hyperparams_states/learning_rate/count": "schedule",
                "opt_state/inner_state/0/count": "bias_correction",
            },
        ),
        ("schedule_free_sgd", {"opt_state/step_count": "schedule"}),
        (
            "reduce_on_plateau",
            {
                "opt_state/0/0/count": "bias_correction",
                "opt_state/1/plateau_count": "counter",
                "opt_state/1/cooldown_count": "counter",
                "opt_state/1/count": "counter",
            },
        ),
    ],
)
def test_clocks_are_named_with_what_they_drive(name: str, clocks: dict[str, str]) -> None:
    found = survey(train_state(name)).clocks
    assert {str(p): c.drives for p, c in found.items()} == {**clocks, "step": "nothing"}


def test_a_driving_clock_knows_all_its_slots_and_they_know_it() -> None:
    result = survey(train_state("adam"))
    (count,) = (p for p in result.clocks if p[-1] == "count")
    assert set(result.clocks[count].slots) == set(result.slots)
    assert all(slot.clocks == (count,) for slot in result.slots.values())


def test_injected_hyperparameters_are_listed_by_name() -> None:
    found = survey(train_state("inject_const")).hyperparams
    assert {str(p): name for p, name in found.items()} == {
        "opt_state/hyperparams/learning_rate": "learning_rate",
        "opt_state/hyperparams/momentum": "momentum",
    }


def test_a_schedule_free_step_count_starts_at_one() -> None:
    result = survey(train_state("schedule_free_sgd"))
    assert result.clocks[LeafPath(("opt_state", "step_count"))].fresh == 1


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_slots_that_follow_no_single_param_are_asked_for(name: str) -> None:
    result = survey(train_state(name))
    assert result.questions
    assert result.questions_about([LeafPath(("params", "Dense_0", "kernel"))])
    assert all("slots:" in question.fix for question in result.questions)


def test_unsure_slots_name_what_they_may_be() -> None:
    unsure = survey(train_state("adam")).unsure[0]
    assert set(unsure.candidates) == {
        "adam", "yogi", "adamax", "adopt", "centered_rmsprop", "adabelief",
    }  # fmt: skip
    assert "optimizer_kind" in unsure.fixes[0]


def test_no_values_settle_what_an_empty_state_before_may_have_done() -> None:
    assert not survey(train_state("clip_adam")).telling_pairs


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("adamm", "did you mean `adam"),
        ("galore", "projections"),
        ("masked", "wraps other optimizers"),
        ("clip", "keeps no slots"),
        ("lion", "fits no state"),
    ],
)
def test_a_kind_that_settles_nothing_is_refused(kind: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        survey(train_state("adam"), kind=kind)


def test_a_params_root_that_is_not_there_is_refused_with_the_names_that_are() -> None:
    with pytest.raises(PlanError, match="'parms'") as caught:
        survey(train_state("adam"), params="parms")
    assert "'params'" in str(caught.value)


@pytest.mark.parametrize("name", FOUND)
def test_what_is_unsure_is_about_slots_also_where_the_params_stand_in_a_state(name: str) -> None:
    tree = train_state(name)
    roots = {str(slot.root) for slot in survey(tree).slots.values()}
    nodes = {str(slot.node) for slot in survey(tree).slots.values() if slot.node in tree.nodes}
    for params in sorted(roots | nodes):
        found = survey(tree, params=params)
        named = {path for unsure in found.unsure for path in unsure.slots}
        assert named <= found.slots.keys(), params
