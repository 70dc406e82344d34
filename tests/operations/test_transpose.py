"""A newcomer's operation that changes shapes: engine, optimizer and preview follow what its effect says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.draft.expression import Stored
from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import PlanError
from surgery_cli.operations.delete import Delete
from surgery_cli.operations.reshape import Reshape
from surgery_cli.operations.transpose import Transpose
from surgery_cli.planning import plan_of
from surgery_cli.tree.paths import LeafPath
from tests.operations.value_edits import (
    ArrayScene,
    draft_of,
    edited,
    rewritten,
)

SHAPE = (12, 7)


def trained(tx: Any, shape: tuple[int, ...] = SHAPE) -> dict[str, Any]:
    """Three steps of a training that leaves something in every slot."""
    rng = np.random.default_rng(0)
    params = {"w": jnp.asarray(rng.normal(size=shape), jnp.float32), "b": jnp.ones(3)}
    state = tx.init(params)
    for _ in range(3):
        gradient = jax.tree.map(lambda p: jnp.asarray(rng.normal(size=p.shape), p.dtype), params)
        updates, state = tx.update(gradient, state, params)
        params = optax.apply_updates(params, updates)
    return {"params": params, "opt_state": state}


def transposed(tree: Any) -> Any:
    """Every matrix of a tree the other way round."""
    return jax.tree.map(lambda x: x.T if getattr(x, "ndim", 0) == 2 else x, tree)


def applied(state: Any, folder: Path, **fields: Any) -> Any:
    """The state after the edit, restored by Orbax into what the training script then expects."""
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(folder / "before", state)
        checkpointer.wait_until_finished()
        edit = Transpose(at="params/w", axes=(1, 0), **fields)
        surgery.apply(str(folder / "before"), str(folder / "after"), plan_of([edit]))
        target = jax.tree.map(ocp.utils.to_shape_dtype_struct, transposed(state))
        return checkpointer.restore(folder / "after", target)


@pytest.mark.parametrize("policy", [None, "keep", "transform"])
def test_training_goes_on_as_it_would_have_with_the_axes_the_other_way_round(
    tmp_path: Path, policy: str | None
) -> None:
    tx = optax.adamw(1e-2)
    state = trained(tx)
    found = applied(state, tmp_path, optimizer=policy)
    gradient = jax.tree.map(lambda p: p * 0.3 + 0.1, state["params"])
    ours, _ = tx.update(transposed(gradient), found["opt_state"], found["params"])
    theirs, _ = tx.update(gradient, state["opt_state"], state["params"])
    jax.tree.map(np.testing.assert_array_equal, found["params"], transposed(state["params"]))
    jax.tree.map(np.testing.assert_array_equal, ours, transposed(theirs))


@pytest.mark.parametrize(("policy", "keeps_squares"), [("reset", False), ("warm", True)])
def test_a_reset_gives_slots_of_the_new_shape_and_warm_ones_keep_their_squares(
    tmp_path: Path, policy: str, keeps_squares: bool
) -> None:
    state = trained(optax.adam(1e-2))
    found = applied(state, tmp_path, optimizer=policy)["opt_state"][0]
    np.testing.assert_array_equal(found.mu["w"], np.zeros(SHAPE[::-1]))
    squares = state["opt_state"][0].nu["w"].T if keeps_squares else np.zeros(SHAPE[::-1])
    np.testing.assert_array_equal(found.nu["w"], squares)
    np.testing.assert_array_equal(found.mu["b"], state["opt_state"][0].mu["b"])


def test_one_number_for_a_whole_leaf_stays_as_it_is(tmp_path: Path) -> None:
    state = trained(optax.novograd(1e-2))
    found = applied(state, tmp_path)["opt_state"][0]
    np.testing.assert_array_equal(found.mu["w"], state["opt_state"][0].mu["w"].T)
    assert found.nu["w"] == state["opt_state"][0].nu["w"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("policy", [None, "keep", "transform", "reset", "warm"])
def test_slots_for_which_there_is_no_map_are_refused_by_name_and_the_advice_works(
    tmp_path: Path, policy: str | None
) -> None:
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "before", trained(optax.sm3(1e-2)))
    edit = Reshape(at="params/w", shape=(-1,), optimizer=policy)
    with pytest.raises(PlanError, match="cannot follow 'reshape' on 'params/w'") as caught:
        surgery.apply(str(tmp_path / "before"), str(tmp_path / "after"), plan_of([edit]))
    problem = caught.value.problems[0]
    assert "the edit makes other axes" in problem.why
    assert problem.fix.startswith("`delete` 'opt_state' in an edit before")
    assert not (tmp_path / "after").exists()
    edits = [Delete(at="opt_state"), Reshape(at="params/w", shape=(-1,))]
    surgery.apply(str(tmp_path / "before"), str(tmp_path / "after"), plan_of(edits))


def test_the_preview_says_what_it_does(tmp_path: Path) -> None:
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "before", trained(optax.adam(1e-2)))
    edit = Transpose(at="params/w", axes=(1, 0))
    preview = surgery.plan(str(tmp_path / "before"), plan_of([edit]))
    (line,) = preview.edits
    assert (line.operation, line.effect, line.twins) == (
        "transpose",
        "rearranges",
        {"transform": 2},
    )
    assert {leaf.path: (leaf.before, leaf.after) for leaf in preview.leaves} == dict.fromkeys(
        ("opt_state/0/mu/w", "opt_state/0/nu/w", "params/w"), ("float32[12,7]", "float32[7,12]")
    )


@pytest.mark.parametrize("block", [(5, 2, 3), (1, 3, 7), (6, 1, 1)])
def test_blocks_of_any_shape_come_from_elsewhere_in_the_leaf(block: tuple[int, ...]) -> None:
    leaf = np.arange(126, dtype=np.float32).reshape(3, 7, 6)
    result = edited(Transpose(axes=(2, 0, 1)), leaf, block=block)
    np.testing.assert_array_equal(result, leaf.transpose(2, 0, 1))


def test_twice_is_the_stored_leaf_again_by_reference() -> None:
    once = rewritten(Transpose(at="w", axes=(2, 0, 1)), tree(), ArrayScene())
    assert [str(path) for path in once.changed] == ["w"]
    back = rewritten(Transpose(at="w", axes=(1, 2, 0)), once, ArrayScene())
    assert isinstance(back.leaves[LeafPath(("w",))].recipe, Stored)
    assert back.changed == []


def tree() -> Draft:
    return draft_of({"w": np.zeros((2, 3, 4), np.float32)})


def test_elements_that_are_not_finite_may_move(tmp_path: Path) -> None:
    state = trained(optax.adam(1e-2), (7, 7))
    state["params"]["w"] = state["params"]["w"].at[1, 2].set(np.nan)
    found = applied(state, tmp_path)
    assert np.argwhere(np.isnan(found["params"]["w"])).tolist() == [[2, 1]]


@pytest.mark.parametrize(
    ("shape", "axes", "is_told"),
    [
        ((4, 4), (1, 0), True),
        ((4, 1, 4), (2, 1, 0), True),
        ((4, 5), (1, 0), False),
        ((4, 4), (0, 1), False),
        ((1, 4), (1, 0), False),
        ((1, 1), (1, 0), False),
        ((1, 4, 1), (2, 1, 0), False),
    ],
)
def test_where_no_shape_shows_it_the_turn_is_told(shape, axes, is_told):
    """Nothing that looks at shapes would tell such a leaf from one that was not turned."""
    draft = draft_of({"w": np.zeros(shape, np.float32)})
    after = rewritten(Transpose(at="w", axes=axes), draft, ArrayScene())
    said = " ".join(map(str, after.notes))
    assert ("does not show how the axes stand" in said) == is_told
    assert ("of 1 of 1 leaf the shape is the same" in said) == is_told
