"""Pruning sets exactly so many of the smallest elements to 0, in whatever blocks, and first moments with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.compute.jax_kit import JaxKit
from surgery_cli.draft.kernels.mask import Masked
from surgery_cli.errors import PlanError, ValueRefusal
from surgery_cli.operations.prune import Prune
from surgery_cli.planning import operation_from_options, plan_of
from tests.operations.value_edits import (
    ArrayScene,
    draft_of,
    edited,
    rewritten,
)
from tests.optimizer.optax_registry import OPTIMIZERS
from tests.optimizer.test_policies import draft_of as state_draft
from tests.optimizer.test_policies import edited as with_twins

DTYPES = ["float32", "bfloat16", "float16", "float64", "float8_e4m3fn", "complex64"]


def dtype_of(name: str) -> Any:
    return np.dtype(getattr(ml_dtypes, name, name))


def largest(leaf: Any, count: int) -> Any:
    """Where the largest elements stand, the first of equal ones before the others: a stable sort in NumPy."""
    wide = np.abs(leaf.astype(np.complex128 if leaf.dtype.kind == "c" else np.float64))
    order = np.argsort(-wide.reshape(-1), kind="stable")
    chosen = np.zeros(leaf.size, bool)
    chosen[order[:count]] = True
    return chosen.reshape(leaf.shape)


def pruned(leaf: Any, sparsity: float) -> Any:
    count = leaf.size - round(sparsity * leaf.size)
    return np.where(largest(leaf, count), leaf, np.zeros((), leaf.dtype))


LEAVES = {
    "all different": lambda rng: rng.normal(size=(40, 30)),
    "many equal": lambda rng: np.round(2 * rng.normal(size=(40, 30))),
    "zeros": lambda rng: np.zeros((40, 30)),
    "signs": lambda rng: np.sign(rng.normal(size=(40, 30))),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", LEAVES)
@pytest.mark.parametrize("name", DTYPES)
def test_exactly_so_many_of_the_smallest_become_zero_whatever_the_blocks(
    name: str, kind: str
) -> None:
    leaf = LEAVES[kind](np.random.default_rng(0)).astype(dtype_of(name))
    for sparsity in (0.0001, 0.1, 0.5, 0.9, 0.9999):
        wanted = pruned(leaf, sparsity)
        for block in (None, (7, 30), (9, 4)):
            found = edited(Prune(sparsity=sparsity), leaf, block=block)
            assert found.tobytes() == wanted.tobytes(), (sparsity, block)


@pytest.mark.parametrize("shape", [(), (1,), (5,), (2, 3, 4, 5)])
def test_leaves_of_any_shape_are_pruned(shape: tuple[int, ...]) -> None:
    leaf = np.round(np.random.default_rng(1).normal(size=shape) * 2).astype(np.float32)
    np.testing.assert_array_equal(edited(Prune(sparsity=0.6), leaf), pruned(leaf, 0.6))


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize(("pattern", "count", "size"), [("2:4", 2, 4), ("1:2", 1, 2)])
def test_of_every_group_of_neighbours_the_largest_stay(
    pattern: str, count: int, size: int, axis: int
) -> None:
    leaf = np.round(np.random.default_rng(2).normal(size=(8, 12, 16)) * 2).astype(np.float32)
    groups = np.moveaxis(leaf, axis, -1).reshape(-1, size)
    kept = np.stack([pruned(group, 1 - count / size) for group in groups])
    moved = np.moveaxis(leaf, axis, -1).shape
    wanted = np.moveaxis(kept.reshape(moved), -1, axis)
    for block in (None, (3, 5, 16), (8, 1, 7)):
        found = edited(Prune(pattern=pattern, axis=axis), leaf, block=block)
        np.testing.assert_array_equal(found, wanted)


def test_jax_prunes_the_same_elements() -> None:
    leaf = np.round(2 * np.random.default_rng(0).normal(size=(8, 8))).astype(ml_dtypes.bfloat16)
    kit = JaxKit(device=jnp.zeros(()).devices().pop())
    for edit in (Prune(sparsity=0.5), Prune(pattern="2:4", axis=0)):
        on_jax = edited(edit, leaf, block=(4, 8), kit=kit)
        assert on_jax.tobytes() == edited(edit, leaf).tobytes()


def test_infinities_are_the_largest_and_nan_has_no_size() -> None:
    leaf = np.array([1.0, -np.inf, 3.0, 0.5], np.float32)
    np.testing.assert_array_equal(edited(Prune(sparsity=0.75), leaf), [0, -np.inf, 0, 0])
    leaf[2] = np.nan
    for edit in (Prune(sparsity=0.75), Prune(pattern="1:2", axis=0)):
        with pytest.raises(ValueRefusal, match="no order by size"):
            edited(edit, leaf)


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({}, "takes a share or a pattern"),
        ({"sparsity": 0.5, "pattern": "2:4", "axis": 0}, "not both"),
        ({"sparsity": 0.0}, "no share to prune"),
        ({"sparsity": 1.5}, "no share to prune"),
        ({"sparsity": float("nan")}, "no share to prune"),
        ({"pattern": "4:2", "axis": 0}, "no pattern"),
        ({"pattern": "half", "axis": 0}, "no pattern"),
        ({"pattern": "2:4"}, "needs `axis`"),
        ({"pattern": "2:4", "axis": 0, "over": "all"}, "means nothing here"),
        ({"sparsity": 0.5, "axis": 0}, "means nothing here"),
        ({"pattern": "2:3", "axis": 0}, "no whole groups of 3 along axis 0"),
        ({"pattern": "2:4", "axis": 5}, "does not fit a leaf with 2 axes"),
    ],
)
def test_what_says_no_one_thing_is_refused(fields: dict[str, Any], what: str) -> None:
    draft = draft_of({"w": np.ones((8, 4), np.float32)})
    with pytest.raises(PlanError, match=what) as caught:
        rewritten(Prune(at="w", **fields), draft, ArrayScene())
    assert caught.value.problems[0].fix


def test_integers_are_refused() -> None:
    with pytest.raises(PlanError, match="prune does not apply to int32"):
        edited(Prune(sparsity=0.5), np.arange(4, dtype=np.int32))


# --- together, from disk to disk -------------------------------------------------------------------------------


def saved(path: Path, tree: Any) -> Path:
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, tree)
    return path


def restored(path: Path) -> Any:
    with ocp.StandardCheckpointer() as checkpointer:
        return checkpointer.restore(path)


def test_a_share_of_all_leaves_is_found_over_all_of_them_in_little_memory(tmp_path: Path) -> None:
    """The first leaf has two blocks; leaves of two dtypes are compared by their values, equal ones in stored order."""
    rng = np.random.default_rng(3)
    params = {
        "big": rng.normal(size=(10240, 512)).astype(np.float32),
        "coarse": (3 * rng.normal(size=(64, 48))).astype(ml_dtypes.bfloat16),
        "same": np.full(1000, 0.5, np.float32),
    }
    source = saved(tmp_path / "a", {"params": params})
    flat = np.concatenate([leaf.reshape(-1).astype(np.float64) for leaf in params.values()])
    above = int((np.abs(flat) > 0.5).sum())  # so that the equal ones are parted
    sparsity = 1 - (above + 100) / flat.size
    edit = operation_from_options("prune", {"at": "params", "sparsity": sparsity, "over": "all"})
    surgery.apply(
        str(source),
        str(tmp_path / "b"),
        plan_of([edit]),
        options=surgery.Options(memory_bytes=192 << 20),
    )
    done = restored(tmp_path / "b")["params"]
    chosen, start = largest(flat, above + 100), 0
    for name, leaf in params.items():
        part = chosen[start : start + leaf.size].reshape(leaf.shape)
        start += leaf.size
        wanted = np.where(part, leaf, np.zeros((), leaf.dtype))
        np.testing.assert_array_equal(np.asarray(done[name]), wanted)


# --- the optimizer ---------------------------------------------------------------------------------------------

KERNEL_AT = "params/Dense_0/kernel"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_slots_are_left_or_start_anew_where_the_param_became_zero(name: str) -> None:
    """Of every optimizer, second moments stay, and no slot loses more than the elements of its param that are lost."""
    before = state_draft(name)
    after = with_twins(before, Prune(at=KERNEL_AT, sparsity=0.5))
    (param,) = (path for path in after.leaves if str(path) == KERNEL_AT)
    mask = after.leaves[param].recipe.inputs[1]
    for slot in after.slots_of.get(param, ()):
        recipe = after.leaves[slot.path].recipe
        if recipe is before.leaves[slot.path].recipe:
            continue
        assert isinstance(recipe.kernel, Masked)
        assert recipe.inputs == (before.leaves[slot.path].recipe, mask)
        assert not slot.is_second_moment
        assert recipe.spec == before.leaves[slot.path].spec


COMMUTING = {
    "adam": optax.adam(0.1),
    "adagrad": optax.adagrad(0.1),
    "rmsprop": optax.rmsprop(0.1),
    "momentum": optax.sgd(0.1, momentum=0.9),
    "lion": optax.lion(0.01),
    "schedule_free": optax.contrib.schedule_free_sgd(0.1),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", COMMUTING)
def test_training_with_masked_gradients_keeps_the_zeros_and_all_else_as_it_would_be(
    tmp_path: Path, name: str
) -> None:
    """The judge is optax: what stays trains as if nothing had been pruned, and what became 0 stays there."""
    rng = np.random.default_rng(4)
    optimizer = COMMUTING[name]
    params = {"w": jnp.asarray(rng.normal(size=(6, 5)), jnp.float32)}
    grads = [{"w": jnp.asarray(rng.normal(size=(6, 5)), jnp.float32)} for _ in range(8)]
    state = optimizer.init(params)
    for grad in grads[:4]:
        updates, state = optimizer.update(grad, state, params)
        params = optax.apply_updates(params, updates)
    source = saved(tmp_path / "a", {"params": params, "opt_state": state})
    edit = operation_from_options("prune", {"at": "params/w", "sparsity": 0.4})
    surgery.apply(str(source), str(tmp_path / "b"), plan_of([edit]))
    with ocp.StandardCheckpointer() as checkpointer:
        done = checkpointer.restore(tmp_path / "b", {"params": params, "opt_state": state})
    mask = np.asarray(done["params"]["w"]) != 0
    assert mask.sum() == 18

    pruned_params, pruned_state = done["params"], done["opt_state"]
    for grad in grads[4:]:
        updates, state = optimizer.update(grad, state, params)
        params = optax.apply_updates(params, updates)
        masked = {"w": jnp.where(mask, grad["w"], 0)}
        updates, pruned_state = optimizer.update(masked, pruned_state, pruned_params)
        pruned_params = optax.apply_updates(pruned_params, updates)
    np.testing.assert_array_equal(pruned_params["w"], np.where(mask, params["w"], 0))


def slot_values(tmp_path: Path, policy: str | None, optimizer: Any) -> tuple[Any, Any, Any, Any]:
    rng = np.random.default_rng(5)
    params = {"w": jnp.asarray(rng.normal(size=(4, 3)), jnp.float32)}
    state = optimizer.init(params)
    for _ in range(3):
        grad = {"w": jnp.asarray(rng.normal(size=(4, 3)), jnp.float32)}
        _, state = optimizer.update(grad, state, params)
    tree = {"params": params, "opt_state": state}
    source = saved(tmp_path / "a", tree)
    edit = operation_from_options("prune", {"at": "params/w", "sparsity": 0.5})
    report = surgery.apply(
        str(source), str(tmp_path / "b"), plan_of([edit]), options=surgery.Options(optimizer=policy)
    )
    with ocp.StandardCheckpointer() as checkpointer:
        done = checkpointer.restore(tmp_path / "b", tree)
    return state, done["opt_state"], np.asarray(done["params"]["w"]) != 0, report


@pytest.mark.parametrize("policy", [None, "transform", "warm", "reset", "keep"])
def test_each_policy_does_to_the_moments_what_it_says(tmp_path: Path, policy: str | None) -> None:
    before, after, mask, report = slot_values(tmp_path, policy, optax.adam(0.1))
    mu, nu = (np.asarray(getattr(before[0], name)["w"]) for name in ("mu", "nu"))
    new_mu, new_nu = (np.asarray(getattr(after[0], name)["w"]) for name in ("mu", "nu"))
    np.testing.assert_array_equal(new_mu, mu if policy == "keep" else np.where(mask, mu, 0))
    np.testing.assert_array_equal(new_nu, np.where(mask, nu, 0) if policy == "reset" else nu)
    assert any("moves the zeros" in note for note in report.notes) == (policy == "keep")


def test_a_sum_of_squares_is_reset_to_its_start_there_alone() -> None:
    edit = Prune(at=KERNEL_AT, sparsity=0.5, optimizer="reset")
    after = with_twins(state_draft("adagrad", "adagrad"), edit)
    (slot,) = after.slots_of[next(p for p in after.leaves if str(p) == KERNEL_AT)]
    assert after.leaves[slot.path].recipe.kernel == Masked(0.1)


def test_what_has_no_element_for_each_of_the_params_cannot_restart_at_some() -> None:
    edit = Prune(at=KERNEL_AT, sparsity=0.5, optimizer="reset")
    with pytest.raises(PlanError, match="cannot follow 'prune'"):
        with_twins(state_draft("novograd"), edit)


@pytest.mark.parametrize(
    ("sparsity", "said"),
    [
        (0.9, ["of 'params/b', all elements become 0: `sparsity: 0.9` rounds to that"]),
        (0.1, ["of 'params/b', no element becomes 0: `sparsity: 0.1` rounds to that"]),
        (0.5, []),
    ],
)
def test_a_leaf_that_the_share_empties_or_spares_is_named(
    tmp_path: Path, sparsity: float, said: list[str]
) -> None:
    params = {"b": np.arange(1.0, 5.0, dtype=np.float32), "w": np.arange(1.0, 101.0)}
    source = saved(tmp_path / "a", {"params": params})
    edit = Prune(at="params", sparsity=sparsity)
    report = surgery.apply(str(source), str(tmp_path / "b"), plan_of([edit]))
    assert [note for note in map(str, report.notes) if "rounds" in note] == said
