"""Params that get new values in another shape: the optimizer's own state of the new tree is what each slot must be."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import PlanError
from surgery_cli.operations.add import Add
from surgery_cli.operations.base import Operation
from surgery_cli.operations.reinit import Reinit
from surgery_cli.planning import plan_of
from surgery_cli.resolution import resolve
from surgery_cli.tree.specs import TreeSpec
from tests.operations.value_edits import computed
from tests.optimizer.optax_registry import OPTIMIZERS, params_for, train_state, tree_of
from tests.training import compiled_init, compiled_step

VALUE = 0.5
KINDS = {
    "adagrad": "adagrad",
    "yogi": "yogi",
    **dict.fromkeys((name for name in OPTIMIZERS if name.startswith("rmsprop")), "rmsprop"),
}
"""What must be said of a state whose start is not on disk."""

ASK = {
    "flatten_adam": "cannot tell which params",
    "galore": "cannot tell which params",
    "rprop": "the initial value of",
    "schedule_free_adamw": "the initial value of",
    "snapshot_updates": "the initial value of",
}
"""States of which only the user knows which params they mirror, or where they start."""

NOT_FROM_INIT = {"lbfgs": "/params/"}
"""The params of the last step, which the first step alone finds at 0."""


class Metadata:
    """A checkpoint of which only the tree is known."""

    fingerprint = address = "checkpoint"
    places = frozenset({"checkpoint"})
    step = None
    steps: Mapping[int, str] = {}

    def __init__(self, tree: TreeSpec) -> None:
        self.tree = tree


def drafted(tree: TreeSpec, *edits: Operation, **shared: Any) -> Draft:
    def refused(address: str) -> Any:
        raise AssertionError(address)

    return resolve(plan_of(edits, **shared), Metadata(tree), refused)


def reshaped(params: dict[str, Any], at: str) -> dict[str, Any]:
    """The params with 7 places in the last axis of what stands at a key, all of one value."""

    def change(leaf: Any) -> Any:
        return np.full((*leaf.shape[:-1], 7), VALUE, leaf.dtype)

    return {key: jax.tree.map(change, sub) if key == at else sub for key, sub in params.items()}


def values_of(tree: Any) -> dict[str, Any]:
    """Arrays by the paths at which Orbax stores them."""
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        tree = tree._asdict()
    if isinstance(tree, Mapping | list | tuple):
        items = tree.items() if isinstance(tree, Mapping) else enumerate(tree)
        return {
            f"{key}/{path}".rstrip("/"): leaf
            for key, sub in items
            for path, leaf in values_of(sub).items()
        }
    return {"": tree}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_slots_of_every_optimizer_are_what_it_starts_the_new_shape_with(name: str) -> None:
    params = params_for(name)
    at = "r" if name == "complex_adam" else "Dense_1"
    edit = Reinit(at=f"params/{at}", init="constant", value=VALUE, shape=("...", 7))
    if name in ASK:
        with pytest.raises(PlanError, match=ASK[name]):
            drafted(train_state(name), edit)
        return
    draft = drafted(train_state(name), edit, optimizer_kind=KINDS.get(name))
    new = reshaped(params, at)
    expected = {"params": new, "opt_state": OPTIMIZERS[name]().init(new), "step": np.int32(7)}
    specs = {path: (spec.shape, spec.dtype, spec.kind) for path, spec in draft.tree.items()}
    assert specs == {p: (s.shape, s.dtype, s.kind) for p, s in tree_of(expected).items()}
    values = values_of(expected)
    for path in draft.changed:
        made, start = computed(draft.leaves[path].recipe, {}), np.asarray(values[str(path)])
        is_start = NOT_FROM_INIT.get(name, "no such path") not in str(path)
        np.testing.assert_array_equal(made, start if is_start else np.full_like(start, VALUE))


NEW_FREEZE = {"Dense_0": True, "Dense_1": False, "Extra": False}
GROWN: dict[str, Any] = {
    "freeze": lambda: optax.chain(optax.adam(0.1), optax.freeze(NEW_FREEZE)),
    "selective_transform": lambda: optax.selective_transform(
        optax.adam(0.1), freeze_mask=NEW_FREEZE
    ),
    "partition_3same": lambda: optax.partition(
        {"0": optax.adam(0.1), "1": optax.adam(0.2)},
        lambda params: {key: "0" if key == "Dense_0" else "1" for key in params},
    ),
}
"""Optimizers that are told their params by name."""


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_slots_of_params_that_are_added_are_those_of_the_grown_tree(name: str) -> None:
    params = params_for(name)
    model = "r" if name == "complex_adam" else "Dense_1"
    edit = Add(at="params/Extra", like=f"params/{model}", init="constant", value=VALUE)
    asks = {**ASK, "ldog": "the initial value of"}
    if name in asks:
        with pytest.raises(PlanError, match=asks[name]):
            drafted(train_state(name), edit)
        return
    draft = drafted(train_state(name), edit, optimizer_kind=KINDS.get(name))
    new = jax.tree.map(lambda x: np.full_like(x, VALUE), params[model])
    grown = {**params, "Extra": new}
    optimizer = GROWN.get(name, OPTIMIZERS[name])()
    expected = {"params": grown, "opt_state": optimizer.init(grown), "step": np.int32(7)}
    specs = {path: (spec.shape, spec.dtype, spec.kind) for path, spec in draft.tree.items()}
    assert specs == {p: (s.shape, s.dtype, s.kind) for p, s in tree_of(expected).items()}
    values = values_of(expected)
    for path in draft.changed:
        if draft.tree[path].has_array:
            made, start = computed(draft.leaves[path].recipe, {}), np.asarray(values[str(path)])
            is_start = NOT_FROM_INIT.get(name, "no such path") not in str(path)
            np.testing.assert_array_equal(made, start if is_start else np.full_like(start, VALUE))


@pytest.mark.parametrize("name", ["muon", "masked_adam", "partition_2", "sm3"])
def test_another_number_of_axes_asks_where_states_choose_their_params_by_it(name: str) -> None:
    edit = Reinit(at="params/Dense_1/kernel", init="zeros", shape=(2, 3, 4))
    with pytest.raises(PlanError) as caught:
        drafted(train_state(name), edit)
    assert {problem.path.split("/")[0] for problem in caught.value.problems} == {"opt_state"}


def test_slots_that_are_to_stay_cannot() -> None:
    edit = Reinit(at="params/Dense_1/kernel", init="zeros", shape=("*", 9), optimizer="keep")
    with pytest.raises(PlanError) as caught:
        drafted(train_state("adam"), edit)
    assert [str(problem.what) for problem in caught.value.problems] == [
        f"'opt_state/0/{name}/Dense_1/kernel' cannot stay as it is" for name in ("mu", "nu")
    ]
    drafted(train_state("sgd"), edit)


# --- trained, saved, edited, restored by Orbax, and trained on --------------------------------------------------

LEAST = 6
FACTORS = {"min_dim_size_to_factor": LEAST, "multiply_by_parameter_scale": False}
TRAINED: dict[str, Any] = {
    "adamw": optax.adamw(1e-2),
    "adafactor": optax.adafactor(1e-2, momentum=0.9, **FACTORS),
    "sm3": optax.sm3(1e-2),
    "muon": optax.contrib.muon(1e-2),
    "novograd": optax.novograd(1e-2),
    "schedule_free": optax.contrib.schedule_free_sgd(1e-2),
    "multisteps": optax.MultiSteps(optax.adam(1e-2), 4),
    "masked": optax.chain(optax.masked(optax.trace(0.9), {"a": False, "b": True, "head": True})),
}
LAYERS = {"a": (8, 8), "b": (8, 5), "head": (8, 8)}


def start(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        name: {
            "bias": jnp.zeros(shape[-1:], jnp.float32),
            "kernel": jnp.asarray(rng.normal(size=shape), jnp.float32),
        }
        for name, shape in shapes.items()
    }


def step(tx: Any, state: dict[str, Any], seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    params = state["params"]
    gradients = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape), x.dtype), params)
    params, new = compiled_step(tx)(gradients, state["opt_state"], params)
    return {**state, "params": params, "opt_state": new}


def warmed(path: str, fresh: np.ndarray, old: Mapping[str, Any], *, is_sm3: bool) -> np.ndarray:
    """Second moments at the mean of what they were, of the part that held something; SM3 keeps vectors of them."""
    for part in ("mu",) if is_sm3 else ("nu", "v", "v_row", "v_col"):
        if f"/{part}/" in path:
            parts = (path.replace(f"/{part}/", f"/{one}/") for one in (part, "v", "v_row"))
            was = next(old[one] for one in parts if np.shape(old[one]) != (1,))
            return np.full_like(fresh, np.asarray(was, np.float64).mean())
    return fresh


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("name", "size"), [*((name, 12) for name in TRAINED), ("adafactor", 3)])
def test_a_head_of_another_size_is_restored_and_trained_on(
    name: str, size: int, tmp_path: Path
) -> None:
    tx, params = TRAINED[name], start(LAYERS)
    init = compiled_init(tx)
    before = {"params": params, "opt_state": init(params), "ema": start(LAYERS)}
    for seed in (1, 2):
        before = step(tx, before, seed)
    shapes = {**LAYERS, "head": (8, size)}
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "before", before)
        checkpointer.wait_until_finished()
        new = start(shapes)
        target = {"params": new, "opt_state": init(new), "ema": new}
        target = jax.tree.map(ocp.utils.to_shape_dtype_struct, target)
        found = {}
        for policy in (None, "warm"):
            edit = Reinit(
                at="params/head",
                init="lecun_normal",
                bias_init="ones",
                shape=("...", size),
                optimizer=policy,
            )
            result = tmp_path / f"after {policy}"
            surgery.apply(str(tmp_path / "before"), str(result), plan_of([edit]))
            found[policy] = checkpointer.restore(result, target)
    old = values_of(before)
    for policy, after in found.items():
        params = after["params"]
        fresh = values_of({"params": params, "opt_state": init(params), "ema": params})
        for path, leaf in values_of(after).items():
            expected = np.asarray(fresh[path] if "head" in path else old[path])
            if policy == "warm" and "head" in path and expected.shape != (1,):
                expected = warmed(path, expected, old, is_sm3=name == "sm3")
            np.testing.assert_allclose(leaf, expected, 1e-6, err_msg=path)
        np.testing.assert_array_equal(params["head"]["bias"], np.ones(size, np.float32))
        assert 0.05 < np.std(params["head"]["kernel"]) < 0.8
        trained = step(tx, after, 3)
        assert all(np.isfinite(np.asarray(x)).all() for x in jax.tree.leaves(trained))
