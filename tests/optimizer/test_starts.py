"""Slots that start elsewhere than at 0 follow but for what is left of their start, or are kept, refused, and said."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import PlanError, ValueRefusal
from surgery_cli.operations.base import LeafOperation
from surgery_cli.operations.normalize import Normalize
from surgery_cli.operations.rescale import Rescale
from surgery_cli.operations.reset_optimizer import ResetOptimizer
from surgery_cli.operations.transpose import Transpose
from surgery_cli.planning import plan_of
from surgery_cli.surgery import Options

STEPS = 4


def trained(optimizer: Any, scale: float, factor: float) -> dict[str, Any]:
    """Params of norm 1 times ``factor``, and the state after gradients of a function that stays the same."""
    draws = np.random.default_rng(0)
    values = draws.normal(size=(4, 3)).astype(np.float32)
    params = {"w": values / np.linalg.norm(values) * np.float32(factor)}
    state, update = optimizer.init(params), jax.jit(optimizer.update)
    for _ in range(STEPS):
        grads = {"w": draws.normal(0, scale, (4, 3)).astype(np.float32) / np.float32(factor)}
        _, state = update(grads, state, params)
    return {"params": params, "opt_state": state}


def saved(path: Path, optimizer: Any, scale: float) -> str:
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(path, trained(optimizer, scale, 1.0))
    return str(path)


def slot(tree: Any, field: str) -> Any:
    return np.asarray(tree["opt_state"][0][field]["w"])


def result(path: Path, field: str) -> Any:
    with ocp.PyTreeCheckpointer() as checkpointer:
        return slot(checkpointer.restore(path), field)


EDITS: dict[str, LeafOperation] = {
    "rescale": Rescale(at="params/w", by=0.1),
    "normalize": Normalize(at="params/w", to=0.1),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("scale", [1e-3, 0.1, 10.0])
@pytest.mark.parametrize("start", [0.1, 1.0])
def test_a_sum_that_never_forgets_its_start_follows_exactly_where_it_is_known(
    start: float, scale: float, edit: str, tmp_path: Path
) -> None:
    optimizer = optax.adagrad(0.1, initial_accumulator_value=start)
    source = saved(tmp_path / "source", optimizer, scale)
    expected = trained(optimizer, scale, 0.1)["opt_state"][0].sum_of_squares["w"]
    words: dict[str, Any] = {"slots": {"opt_state/0/sum_of_squares": {"fresh": start}}}
    if start == 0.1:
        words = {"optimizer_kind": "adagrad"}
    report = surgery.apply(source, str(tmp_path / "new"), plan_of([EDITS[edit]], **words))
    np.testing.assert_allclose(result(tmp_path / "new", "sum_of_squares"), expected, rtol=1e-3)
    assert [taken.node for taken in report.assumptions] == ["opt_state/0"] * (start == 0.1)


def test_the_script_knows_the_start(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import jax.numpy as jnp, optax\n"
        "def make():\n"
        "    tx = optax.adagrad(0.1, initial_accumulator_value=0.5)\n"
        "    params = {'w': jnp.ones((4, 3))}\n"
        "    return {'params': params, 'opt_state': tx.init(params), 'tx': tx}\n"
    )
    optimizer = optax.adagrad(0.1, initial_accumulator_value=0.5)
    source = saved(tmp_path / "source", optimizer, 0.1)
    report = surgery.apply(
        source,
        str(tmp_path / "new"),
        plan_of([EDITS["rescale"]]),
        options=Options(like_init=f"{script}:make"),
    )
    expected = trained(optimizer, 0.1, 0.1)["opt_state"][0].sum_of_squares["w"]
    np.testing.assert_allclose(result(tmp_path / "new", "sum_of_squares"), expected, rtol=1e-3)
    assert not report.assumptions


def test_a_start_above_what_the_slot_holds_is_refused(tmp_path: Path) -> None:
    source = saved(tmp_path / "source", optax.adagrad(0.1, initial_accumulator_value=0.01), 1e-3)
    plan = plan_of([EDITS["rescale"]], optimizer_kind="adagrad")
    with pytest.raises(ValueRefusal, match="its start"):
        surgery.apply(source, str(tmp_path / "new"), plan)


@pytest.mark.parametrize(
    ("optimizer", "field"),
    [
        (optax.adagrad(0.1), "sum_of_squares"),
        (optax.rmsprop(0.1, initial_scale=1.0), "nu"),
        (optax.rmsprop(0.1), "nu"),
    ],
)
def test_without_a_word_a_slot_whose_start_is_a_setting_is_kept_and_never_reset(
    optimizer: Any, field: str, tmp_path: Path
) -> None:
    source = saved(tmp_path / "source", optimizer, 0.1)
    report = surgery.apply(source, str(tmp_path / "new"), plan_of([EDITS["rescale"]]))
    np.testing.assert_array_equal(
        result(tmp_path / "new", field), slot({"opt_state": [_fields(source, field)]}, field)
    )
    assert any("does not follow a factor" in note for note in report.notes)
    for policy in ("transform", "reset"):
        with pytest.raises(PlanError, match="is not known"):
            surgery.plan(source, plan_of([Rescale(at="params/w", by=0.1, optimizer=policy)]))


def _fields(source: str, field: str) -> dict[str, Any]:
    with ocp.PyTreeCheckpointer() as checkpointer:
        found: dict[str, Any] = checkpointer.restore(source)["opt_state"][0]
    return found


def test_what_is_left_of_a_start_that_fades_can_be_said(tmp_path: Path) -> None:
    optimizer = optax.rmsprop(0.1, decay=0.9, initial_scale=1.0)
    source = saved(tmp_path / "source", optimizer, 0.1)
    slots = {"opt_state/0/nu": {"start": 0.9**STEPS}}
    surgery.apply(source, str(tmp_path / "new"), plan_of([EDITS["rescale"]], slots=slots))
    expected = trained(optimizer, 0.1, 0.1)["opt_state"][0].nu["w"]
    np.testing.assert_allclose(result(tmp_path / "new", "nu"), expected, rtol=1e-3)


FADING = {
    "rmsprop": "optax.rmsprop(0.1, decay=0.9, initial_scale=1.0, bias_correction=True)",
    "slow": "optax.rmsprop(0.1, decay=0.999, initial_scale=0.01, bias_correction=True)",
    "centered": "optax.rmsprop(0.1, decay=0.99, centered=True, initial_scale=0.5, bias_correction=True)",
    "twice": "optax.MultiSteps(optax.rmsprop(0.1, initial_scale=1.0, bias_correction=True), 2)",
    "stays": "optax.adagrad(0.1, initial_accumulator_value=0.5)",
}
ARRAY = np.random.default_rng(1).choice([0.25, 0.5, 2.0, -4.0], (4, 3)).astype(np.float32)
FACTORS: dict[str, Any] = {"rescale": 0.1, "negative": -3.0, "array": ARRAY, "normalize": 0.1}


def with_script(optimizer: str, folder: Path) -> Options:
    """Options with a script that makes the state of an optimizer."""
    script = folder / "train.py"
    script.write_text(
        "import jax.numpy as jnp, optax\n"
        "def make():\n"
        f"    tx = {optimizer}\n"
        "    params = {'w': jnp.ones((4, 3))}\n"
        "    return {'params': params, 'opt_state': tx.init(params), 'tx': tx}\n"
    )
    return Options(like_init=f"{script}:make")


def states(path: Path) -> list[Any]:
    with ocp.PyTreeCheckpointer() as checkpointer:
        return jax.tree.leaves(checkpointer.restore(path)["opt_state"])


@cache
def optimizer_of(code: str) -> Any:
    """One object for each call, so that its update is compiled once."""
    return eval(code, {"optax": optax})


def fed(code: str, steps: int, scale: float, factor: Any) -> dict[str, Any]:
    """As ``trained``, for so many steps; one row never has a gradient, and its slots hold their start alone."""
    optimizer = optimizer_of(code)
    draws = np.random.default_rng(0)
    values = draws.normal(size=(4, 3)).astype(np.float32)
    params = {"w": values / np.linalg.norm(values) * np.asarray(factor, np.float32)}
    state, update = optimizer.init(params), jax.jit(optimizer.update)
    for _ in range(steps):
        gradient = draws.normal(0, scale, (4, 3)).astype(np.float32)
        gradient[0] = 0
        _, state = update({"w": gradient / np.asarray(factor, np.float32)}, state, params)
    return {"params": params, "opt_state": state}


def edit_by(name: str, folder: Path) -> LeafOperation:
    if name == "normalize":
        return Normalize(at="params/w", to=0.1)
    if name != "array":
        return Rescale(at="params/w", by=FACTORS[name])
    np.save(folder / "factor.npy", ARRAY)
    return Rescale(at="params/w", by=str(folder / "factor.npy"))


@pytest.mark.sampled(3)
@pytest.mark.covers(1)
@pytest.mark.parametrize(("steps", "scale"), [(1, 0.1), (4, 1e-3), (50, 0.1), (400, 10.0)])
@pytest.mark.parametrize("name", FADING)
def test_a_start_that_fades_is_measured_and_its_steps_are_read(
    name: str, steps: int, scale: float, tmp_path: Path
) -> None:
    source, code = tmp_path / "source", FADING[name]
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(source, fed(code, steps, scale, 1.0))
    options = with_script(code, tmp_path)
    for edit, factor in FACTORS.items():
        goal = tmp_path / edit
        plan = plan_of([edit_by(edit, tmp_path)], optimizer="transform")
        report = surgery.apply(str(source), str(goal), plan, options=options)
        expected = fed(code, steps, scale, factor)
        with ocp.PyTreeCheckpointer() as checkpointer:
            restored = checkpointer.restore(goal, item=expected)
        pairs = zip(jax.tree.leaves(restored), jax.tree.leaves(expected), strict=True)
        for found, wanted in pairs:
            largest = float(np.abs(np.asarray(wanted)).max())
            np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3 * largest)
        said = [note for note in report.notes if f"stays with each of {steps} steps" in note]
        assert len(said) == (name not in ("stays", "twice"))
        fields = json.loads((goal / "surgery.json").read_text())["slots"]
        if said:
            assert [one["faded"]["steps"] for one in fields if "faded" in one] == [steps]


INJECTED = (
    "optax.inject_hyperparams(optax.rmsprop, static_args=('bias_correction', 'initial_scale'))"
    "(0.1, decay=0.9, initial_scale=1.0, bias_correction=True)"
)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("optimizer", "because"),
    [
        ("optax.rmsprop(0.1, initial_scale=1.0)", "no count beside it"),
        ("optax.yogi(0.1)", "depends on the gradients"),
        (INJECTED, "a schedule, or a number of the state"),
        (
            "optax.chain(optax.add_decayed_weights(0.1), optax.scale_by_rms(initial_scale=1.0, bias_correction=True))",
            "does not stay one number",
        ),
        (
            "optax.chain(optax.clip(1.0), optax.scale_by_rms(initial_scale=1.0, bias_correction=True))",
            "clipped",
        ),
    ],
)
def test_a_start_of_which_nobody_can_tell_what_is_left_is_kept_with_the_reason(
    optimizer: str, because: str, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(source, fed(optimizer, 4, 0.1, 1.0))
    options = with_script(optimizer, tmp_path)
    report = surgery.apply(
        str(source), str(tmp_path / "new"), plan_of([EDITS["rescale"]]), options=options
    )
    assert any("kept" in note and because in note for note in report.notes)
    for found, before in zip(states(tmp_path / "new"), states(source), strict=True):
        np.testing.assert_array_equal(found, before)


def test_what_was_filled_anew_under_its_count_is_kept_in_one_run_and_in_two(tmp_path: Path) -> None:
    code, source = FADING["rmsprop"], tmp_path / "source"
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(source, fed(code, 50, 0.1, 1.0))
    options = with_script(code, tmp_path)
    anew = ResetOptimizer(at="opt_state/0/nu")
    for name, first in {"apart": [anew], "together": [anew, EDITS["rescale"]]}.items():
        one, two = tmp_path / f"one {name}", tmp_path / f"two {name}"
        surgery.apply(str(source), str(one), plan_of(first), options=options)
        report = surgery.apply(str(one), str(two), plan_of([EDITS["rescale"]]), options=options)
        assert any("other values" in note for note in report.notes)
        np.testing.assert_array_equal(result(two, "nu"), 1.0)


def test_a_later_run_takes_what_is_left_from_the_record(tmp_path: Path) -> None:
    code, source = FADING["rmsprop"], tmp_path / "source"
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(source, fed(code, STEPS, 0.1, 1.0))
    options = with_script(code, tmp_path)
    plan = plan_of([EDITS["rescale"]])
    surgery.apply(str(source), str(tmp_path / "one"), plan, options=options)
    surgery.apply(str(tmp_path / "one"), str(tmp_path / "two"), plan)
    expected = fed(code, STEPS, 0.1, 0.01)["opt_state"][0].nu["w"]
    np.testing.assert_allclose(result(tmp_path / "two", "nu"), expected, rtol=1e-3)


@pytest.mark.parametrize("runs", [1, 2])
def test_values_that_only_move_keep_what_is_left_of_their_start(runs: int, tmp_path: Path) -> None:
    code, source = FADING["rmsprop"], tmp_path / "source"
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(source, fed(code, STEPS, 0.1, 1.0))
    turn = Transpose(at="params/w", axes=(1, 0))
    edits: list[LeafOperation] = [turn, turn, EDITS["rescale"]]
    if runs == 1:
        edits = [turn, EDITS["rescale"], turn]
    options, place = with_script(code, tmp_path), source
    for number, some in enumerate([edits] if runs == 1 else [edits[:2], edits[2:]]):
        goal = tmp_path / str(number)
        surgery.apply(str(place), str(goal), plan_of(some), options=options)
        place = goal
    expected = fed(code, STEPS, 0.1, 0.1)["opt_state"][0].nu["w"]
    np.testing.assert_allclose(result(place, "nu"), expected, rtol=1e-3)


def test_what_a_start_hides_is_refused(tmp_path: Path) -> None:
    code, source = FADING["rmsprop"], tmp_path / "source"
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(source, fed(code, STEPS, 1e-5, 1.0))
    options = with_script(code, tmp_path)
    with pytest.raises(ValueRefusal, match="hides what it gathered"):
        surgery.apply(
            str(source),
            str(tmp_path / "new"),
            plan_of([Rescale(at="params/w", by=1e-3)]),
            options=options,
        )
