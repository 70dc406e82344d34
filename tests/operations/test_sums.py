"""Noise, shrink-and-perturb and add-scaled: sums that are rounded once, and the same sums for copies of params."""

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
from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import PlanError, ValueRefusal
from surgery_cli.operations.add_scaled import AddScaled
from surgery_cli.operations.base import LeafOperation
from surgery_cli.operations.noise import Noise
from surgery_cli.operations.reinit import Reinit
from surgery_cli.operations.shrink_and_perturb import ShrinkAndPerturb
from surgery_cli.planning import operation_from_options, plan_of
from tests.operations.value_edits import (
    KERNEL,
    ArrayScene,
    ArraySource,
    computed,
    draft_of,
    edited,
    path_of,
    rewritten,
)
from tests.optimizer.test_policies import KERNEL as KERNEL_AT
from tests.optimizer.test_policies import draft_of as state_draft
from tests.optimizer.test_policies import edited as with_twins

DTYPES = [np.float32, ml_dtypes.bfloat16, np.float16, np.float64]


def leaf_of(dtype: Any, seed: int = 0) -> Any:
    return (1 + np.random.default_rng(seed).normal(size=(12, 10))).astype(dtype)


def drawn(edit: Reinit) -> Any:
    """What `reinit` draws for the leaf in float64."""
    return edited(edit, np.zeros((12, 10)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_noise_is_what_reinit_draws_added_in_float64_and_rounded_once(dtype: Any) -> None:
    leaf = leaf_of(dtype)
    values = drawn(Reinit(init="normal", stddev=0.3, seed=7))
    wanted = (leaf.astype(np.float64) + values).astype(dtype)
    for block in (None, (5, 10), (3, 4)):
        found = edited(Noise(std=0.3, seed=7), leaf, block=block)
        assert found.dtype == leaf.dtype
        np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=1e-15)
    assert edited(Noise(std=0.3, seed=8), leaf).tobytes() != found.tobytes()


@pytest.mark.parametrize("exponent", [-1000, -600, 500])
def test_relative_noise_goes_by_deviations_whose_squares_float64_does_not_hold(
    exponent: int,
) -> None:
    leaf = np.random.default_rng(1).normal(size=(6, 5))
    usual = edited(Noise(std=0.1, relative=True), leaf)
    found = edited(Noise(std=0.1, relative=True), np.ldexp(leaf, exponent))
    np.testing.assert_allclose(found, np.ldexp(usual, exponent), rtol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
def test_relative_noise_goes_by_the_leafs_own_deviation_whatever_the_blocks(dtype: Any) -> None:
    leaf = leaf_of(dtype)
    std = 0.1 * leaf.astype(np.float64).std()
    wanted = edited(Noise(std=std), leaf)
    for block in (None, (5, 10), (3, 4)):
        found = edited(Noise(std=0.1, relative=True), leaf, block=block)
        np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=1e-6)


def test_a_leaf_whose_elements_are_equal_has_no_deviation_to_go_by() -> None:
    leaf = np.full((3, 4), 2.0, np.float32)
    with pytest.raises(ValueRefusal, match="no standard deviation") as caught:
        edited(Noise(std=0.1, relative=True), leaf)
    assert "on_zero: keep" in caught.value.problems[0].fix
    kept = edited(Noise(std=0.1, relative=True, on_zero="keep"), leaf)
    assert kept.tobytes() == leaf.tobytes()
    leaf[0, 0] = np.nan
    with pytest.raises(ValueRefusal, match="no standard deviation"):
        edited(Noise(std=0.1, relative=True, on_zero="keep"), leaf)


@pytest.mark.parametrize(
    ("fields", "added"),
    [
        ({"std": 0.3}, Reinit(init="normal", stddev=0.3)),
        ({"init": "lecun_normal"}, Reinit(init="lecun_normal")),
        ({"init": "orthogonal"}, Reinit(init="orthogonal")),
        ({"init": "ones"}, Reinit(init="ones")),
    ],
)
def test_what_is_shrunk_is_perturbed_by_what_reinit_draws(fields: Any, added: Reinit) -> None:
    leaf = leaf_of(np.float32)
    wanted = (0.4 * leaf.astype(np.float64) + drawn(added)).astype(np.float32)
    for block in (None, (3, 4)) if fields.get("init") != "orthogonal" else (None,):
        found = edited(ShrinkAndPerturb(shrink=0.4, **fields), leaf, block=block)
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_an_initializers_values_may_be_scaled() -> None:
    leaf = leaf_of(np.float32)
    found = edited(ShrinkAndPerturb(shrink=0.5, init="he_normal", perturb=0.5), leaf)
    values = drawn(Reinit(init="he_normal"))
    np.testing.assert_allclose(found, 0.5 * leaf.astype(np.float64) + 0.5 * values, rtol=1e-6)


@pytest.mark.parametrize(
    ("edit", "what"),
    [
        (Noise(at="w", std=0.0), "no standard deviation"),
        (Noise(at="w", std=-1.0), "no standard deviation"),
        (Noise(at="w", std=float("nan")), "is nan"),
        (Noise(at="w", std=1e-300), "would become 0"),
        (Noise(at="z", std=1.0), "random values are real"),
        (Noise(at="n", std=1.0), "noise does not apply to int"),
        (ShrinkAndPerturb(at="w", shrink=0.0, std=1.0), "does not shrink"),
        (ShrinkAndPerturb(at="w", shrink=1.5, std=1.0), "does not shrink"),
        (ShrinkAndPerturb(at="w", shrink=0.5), "a standard deviation or an initializer"),
        (ShrinkAndPerturb(at="w", shrink=0.5, std=1.0, init="normal"), "not both"),
        (ShrinkAndPerturb(at="w", shrink=0.5, init="normale"), "normale"),
        (ShrinkAndPerturb(at="w", shrink=0.5, std=1.0, perturb=2.0), "means nothing here"),
        (AddScaled(at="w"), "needs something to add"),
        (AddScaled(at="w", from_="w", scale=float("inf")), "is inf"),
        (AddScaled(at="w", from_="b"), "cannot be added"),
        (AddScaled(at="w", from_="z"), "cannot be added"),
        (AddScaled(at="w", from_="n"), "cannot be added"),
        (AddScaled(at="w", from_="other"), "has no leaf 'other'"),
    ],
)
def test_what_would_do_nothing_or_cannot_be_is_refused(edit: LeafOperation, what: str) -> None:
    draft = draft_of(
        {
            "w": np.ones((2, 3), np.float32),
            "b": np.ones(3, np.float32),
            "z": np.ones((2, 3), np.complex64),
            "n": np.ones((2, 3), np.int32),
        }
    )
    with pytest.raises(PlanError) as caught:
        rewritten(edit, draft, ArrayScene())
    assert what in str(caught.value)


def added(arrays: dict[str, Any], edit: AddScaled, scene: ArrayScene | None = None) -> Draft:
    return rewritten(edit, draft_of(arrays), scene or ArrayScene())


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_leaf_of_another_checkpoint_is_added_in_float64_and_rounded_once(dtype: Any) -> None:
    leaf, other = leaf_of(dtype), leaf_of(ml_dtypes.bfloat16, 1)
    scene = ArrayScene(donor=ArraySource({str(KERNEL): other}))
    draft = added({str(KERNEL): leaf}, AddScaled(at="**", with_="donor", scale=-0.3), scene)
    total = leaf.astype(np.float64) - 0.3 * other.astype(np.float64)
    for block in (None, (3, 4)):
        recipe = draft.leaves[KERNEL].recipe
        found = computed(recipe, {KERNEL: leaf}, block=block, scene=scene)
        assert found.tobytes() == total.astype(dtype).tobytes()


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float64, np.complex64])
def test_a_number_is_added_to_every_element_and_rounded_once(dtype: Any) -> None:
    leaf = leaf_of(dtype)
    draft = added({str(KERNEL): leaf}, AddScaled(at="**", with_=1 / 3, scale=-2.0))
    wide = np.complex128 if dtype is np.complex64 else np.float64
    expected = (leaf.astype(wide) - 2.0 * (1 / 3)).astype(dtype)
    for block in (None, (3, 4)):
        found = computed(draft.leaves[KERNEL].recipe, {KERNEL: leaf}, block=block)
        assert found.tobytes() == expected.tobytes()


def test_a_number_stands_nowhere_and_is_finite() -> None:
    for fields in ({"with_": 1.0, "from_": "a"}, {"with_": float("nan")}):
        with pytest.raises(PlanError):
            added({"a": np.ones(3, np.float32)}, AddScaled(at="a", **fields))


def test_a_path_of_the_same_checkpoint_means_what_stands_there_at_that_moment() -> None:
    arrays = {"a": np.ones(3, np.float32), "b": np.full(3, 2.0, np.float32)}
    first = added(arrays, AddScaled(at="b", from_="a", scale=10.0))  # b is 12
    second = rewritten(AddScaled(at="a", from_="b"), first, ArrayScene())  # a is 1 + 12
    own = {path_of(text): array for text, array in arrays.items()}
    found = computed(second.leaves[path_of("a")].recipe, own)
    np.testing.assert_array_equal(found, np.full(3, 13.0))


def test_what_follows_a_node_is_appended_and_wildcards_are_filled_in() -> None:
    arrays = {f"{top}/l{n}/w": np.full(2, n + 1.0, np.float32) for top in "ab" for n in (0, 1)}
    own = {path_of(text): array for text, array in arrays.items()}
    for edit in (AddScaled(at="a", from_="b"), AddScaled(at="a/*/w", from_=r"b/\1/w")):
        draft = added(arrays, edit)
        for n in (0, 1):
            found = computed(draft.leaves[path_of(f"a/l{n}/w")].recipe, own)
            np.testing.assert_array_equal(found, np.full(2, 2 * (n + 1.0)))


EDITS = {
    "noise": {"std": 0.1, "relative": True},
    "shrink-and-perturb": {"shrink": 0.5, "std": 0.1},
    "add-scaled": {"from": "other/w", "scale": 0.5},
    "clip": {"max": 0.2},
}


@pytest.mark.parametrize("name", EDITS)
def test_copies_of_params_in_the_optimizer_state_get_the_same_and_other_slots_stay(
    tmp_path: Path, name: str
) -> None:
    """Schedule-free training keeps `z` beside the params: both move by the same, or training would undo the edit."""
    optimizer = optax.contrib.schedule_free_adamw(0.1)
    params = {"w": jnp.asarray(leaf_of(np.float32))}
    state = optimizer.init(params)
    for seed in (1, 2, 3):
        updates, state = optimizer.update(
            {"w": jnp.asarray(leaf_of(np.float32, seed))}, state, params
        )
        params = optax.apply_updates(params, updates)
    tree = {"params": params, "opt_state": state, "other": {"w": jnp.ones((12, 10))}}
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "a", tree)
    edit = operation_from_options(name, {"at": "params/w", **EDITS[name]})
    surgery.apply(str(tmp_path / "a"), str(tmp_path / "b"), plan_of([edit]))
    with ocp.StandardCheckpointer() as checkpointer:
        done = checkpointer.restore(tmp_path / "b", tree)
    keep = 0.5 if name == "shrink-and-perturb" else 1.0
    z, new_z = (np.asarray(one.z["w"], np.float64) for one in (state, done["opt_state"]))
    w, new_w = (np.asarray(one["w"], np.float64) for one in (params, done["params"]))
    if name == "clip":
        np.testing.assert_array_equal(new_z, np.minimum(z, np.float32(0.2)))
    else:
        np.testing.assert_allclose(new_z - keep * z, new_w - keep * w, atol=1e-6)
    assert (new_w != w).any()
    assert np.abs(new_z - z).max() > 0.01
    nu = [one.base_optimizer_state[0].nu["w"] for one in (state, done["opt_state"])]
    np.testing.assert_array_equal(nu[0], nu[1])


@pytest.mark.parametrize(
    ("name", "fields"),
    [("noise", {"std": 0.1}), ("shrink-and-perturb", EDITS["shrink-and-perturb"])],
)
def test_slots_stay_unless_a_policy_says_otherwise(name: str, fields: Any) -> None:
    draft, options = state_draft("adam", "adam"), {"at": KERNEL_AT, **fields}
    edit = operation_from_options(name, options)
    assert [str(path) for path in with_twins(draft, edit).changed] == [KERNEL_AT]
    with pytest.raises(PlanError, match="nothing to follow"):
        with_twins(draft, operation_from_options(name, {**options, "optimizer": "transform"}))
