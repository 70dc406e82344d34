"""Clipping bounds elements, or norms, as NumPy does; slots follow a norm as they do a factor, and stay at a range."""

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
from surgery_cli.errors import PlanError, ValueRefusal
from surgery_cli.operations.clip import Clip
from surgery_cli.planning import operation_from_options, plan_of
from tests.operations.value_edits import (
    ArrayScene,
    draft_of,
    edited,
    rewritten,
)
from tests.optimizer.test_policies import KERNEL as KERNEL_AT
from tests.optimizer.test_policies import draft_of as state_draft
from tests.optimizer.test_policies import edited as with_twins

DTYPES = [np.float32, ml_dtypes.bfloat16, np.float16, np.float64, ml_dtypes.float8_e4m3fn]


def leaf_of(dtype: Any) -> Any:
    return np.random.default_rng(0).normal(size=(12, 10)).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bounds", [{"min": -0.1}, {"max": 0.3}, {"min": -0.1, "max": 0.3}])
def test_elements_are_bounded_and_the_others_stay_bit_for_bit(dtype: Any, bounds: Any) -> None:
    leaf = leaf_of(dtype)
    wide = np.float64 if dtype is np.float64 else np.float32
    wanted = np.clip(leaf.astype(wide), bounds.get("min"), bounds.get("max")).astype(dtype)
    for block in (None, (5, 10), (3, 4)):
        assert edited(Clip(**bounds), leaf, block=block).tobytes() == wanted.tobytes()
    within = (wanted != bounds.get("min")) & (wanted != bounds.get("max")) & (wanted == leaf)
    assert within.any()


def test_an_infinity_comes_into_the_range_and_nan_stays() -> None:
    leaf = np.array([np.inf, -np.inf, np.nan, 0.5], np.float32)
    np.testing.assert_array_equal(edited(Clip(min=-2, max=1), leaf), [1, -2, np.nan, 0.5])


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.complex64])
@pytest.mark.parametrize("axis", [None, 0, (0, 1), -1])
def test_a_norm_is_bounded_and_smaller_ones_stay(dtype: Any, axis: Any) -> None:
    leaf = leaf_of(dtype)
    wide = leaf.astype(np.complex128 if dtype is np.complex64 else np.float64)
    norms = np.sqrt((np.abs(wide) ** 2).sum(axis=axis, keepdims=True))
    bound = float(np.median(norms)) if norms.size > 1 else 0.5 * float(norms.reshape(()))
    wanted = wide * np.minimum(1, bound / norms)
    for block in (None, (5, 10), (3, 4)):
        found = edited(Clip(norm=bound, axis=axis), leaf, block=block)
        tolerance = 2**-8 if dtype is ml_dtypes.bfloat16 else 2**-22
        np.testing.assert_allclose(found.astype(wide.dtype), wanted, rtol=tolerance)
        small = np.broadcast_to(norms <= bound, leaf.shape)
        assert found[small].tobytes() == leaf[small].tobytes()


def test_zeros_have_the_smallest_norm_and_what_is_not_finite_none() -> None:
    zeros = np.zeros((3, 2), np.float32)
    assert edited(Clip(norm=1.0), zeros).tobytes() == zeros.tobytes()
    for number in (np.nan, np.inf):
        with pytest.raises(ValueRefusal, match="cannot be clipped by its norm"):
            edited(Clip(norm=1.0), np.array([1, number], np.float32))


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({}, "takes a range or a norm"),
        ({"max": 1.0, "norm": 1.0}, "not both"),
        ({"norm": 0.0}, "is no norm"),
        ({"norm": float("inf")}, "is inf"),
        ({"min": 2.0, "max": 1.0}, "is above"),
        ({"max": 1.0, "axis": 0}, "means nothing here"),
        ({"norm": 1.0, "axis": 2}, "does not fit a leaf with 2 axes"),
        ({"max": 1e300}, "does not fit float32"),
        ({"min": 1e-300}, "would become 0"),
    ],
)
def test_what_bounds_nothing_is_refused(fields: Any, what: str) -> None:
    with pytest.raises(PlanError, match=what):
        rewritten(Clip(at="w", **fields), draft_of({"w": leaf_of(np.float32)}), ArrayScene())


@pytest.mark.parametrize("leaf", [np.arange(4), np.ones(3, np.complex64)])
def test_only_what_has_an_order_is_clipped_to_a_range(leaf: Any) -> None:
    with pytest.raises(PlanError, match=r"clip does not apply|has no range"):
        edited(Clip(max=1.0), leaf)


NU = "opt_state/0/nu/Dense_0/kernel"


def test_second_moments_may_be_clipped_where_that_leaves_them_above_zero() -> None:
    draft = state_draft("adam", "adam")
    for fields in ({"max": 1.0}, {"min": 0.0}, {"norm": 1.0}):
        after = with_twins(draft, Clip(at=NU, twins="named", **fields))
        assert [str(path) for path in after.changed] == [NU]
    with pytest.raises(PlanError, match="would become negative"):
        with_twins(draft, Clip(at=NU, twins="named", max=-1.0))


def test_slots_stay_at_a_range_and_follow_a_norm() -> None:
    draft = state_draft("adam", "adam")
    assert [str(p) for p in with_twins(draft, Clip(at=KERNEL_AT, max=1.0)).changed] == [KERNEL_AT]
    with pytest.raises(PlanError, match="nothing to follow in 'clip'"):
        with_twins(draft, Clip(at=KERNEL_AT, max=1.0, optimizer="transform"))
    changed = with_twins(draft, Clip(at=KERNEL_AT, norm=1.0)).changed
    assert {path[-3] for path in changed if len(path) > 3} == {"mu", "nu"}


def test_moments_after_a_clip_by_norm_are_those_of_the_scaled_gradients(tmp_path: Path) -> None:
    """The judge is optax: with the param scaled down, its gradients are larger by as much, from the first step on."""
    rng = np.random.default_rng(6)
    optimizer = optax.adam(0.1)
    params = {"w": jnp.asarray(rng.normal(size=(6, 5)), jnp.float32)}
    grads = [{"w": jnp.asarray(rng.normal(size=(6, 5)), jnp.float32)} for _ in range(3)]
    bound = float(np.linalg.norm(params["w"])) / 4  # a power of two: exact
    states = [optimizer.init(params), optimizer.init(params)]
    for grad in grads:
        larger = {"w": grad["w"] * 4}
        states = [
            optimizer.update(one, state, params)[1]
            for one, state in zip((grad, larger), states, strict=True)
        ]
    tree = {"params": params, "opt_state": states[0]}
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "a", tree)
    edit = operation_from_options("clip", {"at": "params/w", "norm": bound})
    surgery.apply(str(tmp_path / "a"), str(tmp_path / "b"), plan_of([edit], optimizer_kind="adam"))
    with ocp.StandardCheckpointer() as checkpointer:
        done = checkpointer.restore(tmp_path / "b", tree)
    np.testing.assert_allclose(np.linalg.norm(done["params"]["w"]), bound, rtol=1e-6)
    for name in ("mu", "nu"):
        found, wanted = (getattr(s[0], name)["w"] for s in (done["opt_state"], states[1]))
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
