"""Slots that start elsewhere than at 0 follow but for what is left of their start, or are kept, refused, and said."""

from __future__ import annotations

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
from surgery_cli.plan import plan_of
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
