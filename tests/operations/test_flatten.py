"""Flatten and unflatten: joined keys and nested ones, each the exact way back of the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax.traverse_util import flatten_dict

from surgery_cli import surgery
from surgery_cli.errors import PlanError
from surgery_cli.operations.flatten import Flatten
from surgery_cli.operations.unflatten import Unflatten
from surgery_cli.planning import plan_of
from tests.operations.value_edits import (
    ArrayScene,
    draft_of,
    rewritten,
)

PARAMS = {
    "encoder": {"dense": {"kernel": jnp.arange(6.0).reshape(2, 3), "bias": jnp.ones(3)}},
    "head": {"kernel": jnp.ones((3, 2))},
}


def paths(tree: dict[str, Any], edit: Flatten | Unflatten) -> list[str]:
    leaves = {text: np.zeros(2, np.float32) for text in tree}
    return [path.spelling for path in rewritten(edit, draft_of(leaves), ArrayScene()).leaves]


@pytest.mark.parametrize("separator", [".", "/", "::"])
def test_a_flat_model_restores_and_comes_back(separator: str, tmp_path: Path) -> None:
    tx = optax.MultiSteps(optax.adamw(1e-3), 2)
    state = {"params": PARAMS, "opt_state": tx.init(PARAMS)}
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "nested", state)
        checkpointer.wait_until_finished()
        plan = plan_of([Flatten(at="params", separator=separator)])
        report = surgery.apply(str(tmp_path / "nested"), str(tmp_path / "flat"), plan)
        assert report.bytes_written == 0
        flat = flatten_dict(PARAMS, sep=separator)
        target = {"params": flat, "opt_state": tx.init(flat)}
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, target)
        found = checkpointer.restore(tmp_path / "flat", abstract)
        for name, leaf in flat.items():
            np.testing.assert_array_equal(found["params"][name], leaf)
        again = plan_of([Unflatten(at="params", separator=separator)])
        surgery.apply(str(tmp_path / "flat"), str(tmp_path / "back"), again)
        inverse = surgery.inverse(str(tmp_path / "flat")).plan["edits"]
        assert inverse == [{"op": "unflatten", "at": ["params"], "separator": separator}]
        back = checkpointer.restore(tmp_path / "back", state)
        assert jax.tree.structure(back) == jax.tree.structure(state)
        for one, other in zip(jax.tree.leaves(back), jax.tree.leaves(state), strict=True):
            np.testing.assert_array_equal(one, other)


def test_only_keys_below_what_is_named_are_joined() -> None:
    tree = {"params/a/b/c": 0, "params/a/d": 0, "other/x/y": 0}
    assert paths(tree, Flatten(at="params/*", separator=".")) == [
        "params/a/b.c", "params/a/d", "other/x/y",
    ]  # fmt: skip
    assert paths(tree, Flatten(at=("params", "other"), separator="_")) == [
        "params/a_b_c", "params/a_d", "other/x_y",
    ]  # fmt: skip


def test_only_keys_right_below_what_is_named_are_parted() -> None:
    tree = {"params/a.b/c.d": 0, "params/e": 0}
    assert paths(tree, Unflatten(at="params", separator=".")) == ["params/a/b/c.d", "params/e"]


@pytest.mark.parametrize(
    ("edit", "tree", "said"),
    [
        (Flatten(at="params", separator="."), {"params/a.b/c": 0}, "has `separator: .` in the key"),
        (Flatten(at="params", separator="."), {"params/a.b": 0, "params/c/d": 0}, "in the key 'a.b'"),
        (Flatten(at="params", separator="."), {"params/a": 0}, "changes nothing"),
        (Unflatten(at="params", separator="."), {"params/a": 0}, "no key right below"),
        (Unflatten(at="params", separator="."), {"params/a.": 0}, "nothing on one side"),
        (Unflatten(at="params", separator="."), {"params/a.b": 0, "params/a": 0}, "there already"),
        (Unflatten(at="params", separator="."), {"params/a.b": 0, "params/a/c": 0}, "there already"),
    ],
)  # fmt: skip
def test_what_could_not_be_told_apart_is_refused(
    edit: Flatten | Unflatten, tree: dict[str, Any], said: str
) -> None:
    with pytest.raises(PlanError) as caught:
        paths(tree, edit)
    assert any(said in problem.what for problem in caught.value.problems)


def test_elements_of_lists_are_no_names(tmp_path: Path) -> None:
    state = {"params": {"layers": [{"w": jnp.ones(2), "b": {"c": jnp.ones(1)}}]}}
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "list", state)
    source = str(tmp_path / "list")
    with pytest.raises(PlanError, match="stands in a list"):
        surgery.plan(source, plan_of([Flatten(at="params", separator=".")]))
    plan = plan_of([Flatten(at="params/layers/*", separator=".")])
    surgery.apply(source, str(tmp_path / "flat"), plan)
    with ocp.StandardCheckpointer() as checkpointer:
        found = checkpointer.restore(tmp_path / "flat")
    assert list(found["params"]["layers"][0]) == ["b.c", "w"]
