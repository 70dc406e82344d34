"""The oracle for policies: real states, written by Orbax, edited, restored by the script's own target, trained on.

One plan gives every policy a group of params of its own, so that each optimizer is saved and edited once.
"""

from __future__ import annotations

import json
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import SurgeryError
from surgery_cli.operations.rescale import Rescale
from surgery_cli.planning import plan_of
from tests.optimizer.optax_registry import OPTIMIZERS
from tests.optimizer.policy_registry import CASES, POLICIES, Case

FACTOR = -0.25
"""A power of two, so that exact algebra is exact to the last bit; negative, so that signs show."""
STEPS = 3
SHAPES: dict[str, dict[str, dict[str, tuple[int, ...]]]] = {
    "Dense_0": {policy: {"kernel": (4, 4)} for policy in POLICIES},
    "Dense_1": {
        "transform": {"bias": (4,)},
        "warm": {"kernel": (4, 4)},
        "other": {"bias": (4,)},
    },
}
Tree = dict[str, dict[str, dict[str, Any]]]


def drawn(draws: np.random.Generator) -> Tree:
    """Float32 values for every param."""
    return {
        layer: {
            group: {n: draws.normal(size=s).astype(np.float32) for n, s in leaves.items()}
            for group, leaves in parts.items()
        }
        for layer, parts in SHAPES.items()
    }


def times(tree: Tree, factor: float, *groups: str) -> Tree:
    """The tree with the leaves of these groups multiplied."""
    return {
        layer: {
            group: {n: x * np.float32(factor if group in groups else 1) for n, x in leaves.items()}
            for group, leaves in parts.items()
        }
        for layer, parts in tree.items()
    }


TARGET = drawn(np.random.default_rng(1))
NEEDS_VALUE = {"polyak_sgd", "momo", "momo_adam", "reduce_on_plateau"}
NEEDS_FUNCTION = {"lbfgs": "value_fn", "backtracking": "value_fn", "sophia": "obj_fn"}


class Training:
    """An optimizer and a tiny problem: params near random targets, under noise.

    ``scaled`` groups are those whose params are ``FACTOR`` times larger while the function stays the same.
    """

    def __init__(self, name: str, *scaled: str) -> None:
        self.name, self.scaled = name, scaled

    def value(self, params: Tree) -> Any:
        own = times(params, 1 / FACTOR, *self.scaled)
        apart = jax.tree.map(lambda a, b: (a - b) ** 2, own, TARGET)
        return sum(leaf.sum() for leaf in jax.tree.leaves(apart)) / 2

    def grads(self, params: Tree, noise: Tree) -> Tree:
        own = times(params, 1 / FACTOR, *self.scaled)
        noisy = jax.tree.map(lambda p, t, n: np.asarray(p) - t + 0.3 * n, own, TARGET, noise)
        return times(noisy, 1 / FACTOR, *self.scaled)

    def update(self, grads: Tree, state: Any, params: Tree) -> Any:
        extra: dict[str, Any] = {}
        if self.name in NEEDS_VALUE or self.name in NEEDS_FUNCTION:
            extra = {"value": self.value(params), "grad": grads}
        if self.name in NEEDS_FUNCTION:
            return updater_with_function(self.name, self.scaled)(grads, state, params, **extra)
        if self.name == "dpsgd":
            grads = jax.tree.map(lambda g: g[None], grads)
        return updater(self.name)(grads, state, params, **extra)


@cache
def optimizer(name: str) -> Any:
    return OPTIMIZERS[name]()


@cache
def updater(name: str) -> Any:
    """The update; compiled where its control flow is slow step by step."""
    update = optax.with_extra_args_support(optimizer(name)).update
    if isinstance(optimizer(name), optax.MultiSteps):
        update = optimizer(name).update
    return jax.jit(update) if CASES[name].is_compiled else update


@cache
def updater_with_function(name: str, scaled: tuple[str, ...]) -> Any:
    """The compiled update of an optimizer that evaluates the function."""
    function = {NEEDS_FUNCTION[name]: Training(name, *scaled).value}
    return jax.jit(partial(optimizer(name).update, **function))


def trained(name: str) -> tuple[Tree, Any, Any]:
    """Params and state after some steps, and the state of the same steps with one group scaled from the first on."""
    plain, scaled = Training(name), Training(name, "transform")
    is_compared = CASES[name].error < np.inf
    draws = np.random.default_rng(2)
    params = drawn(draws)
    state = optimizer(name).init(on_device(params))
    other = optimizer(name).init(on_device(times(params, FACTOR, "transform")))
    for _ in range(STEPS):
        noise = drawn(draws)
        larger = times(params, FACTOR, "transform")
        if is_compared:
            grads = on_device(scaled.grads(larger, noise))
            _, other = scaled.update(grads, other, on_device(larger))
        updates, state = plain.update(
            on_device(plain.grads(params, noise)), state, on_device(params)
        )
        params = jax.tree.map(lambda p, u: p + np.asarray(u), params, updates)
    return on_device(params), state, other


def on_device(tree: Tree) -> Tree:
    return jax.tree.map(jnp.asarray, tree)


def unbound(state: Any) -> Any:
    """The arrays as those of `trained`: what Orbax restores is bound to a device, and all would be compiled anew."""

    def free(leaf: Any) -> Any:
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return leaf if is_key else jnp.asarray(np.asarray(leaf))

    return jax.tree.map(free, state)


def leaves(tree: Any) -> dict[str, Any]:
    """The leaves by printed path; keys as their data."""

    def text(keys: Any) -> str:
        return "/".join(
            str(getattr(k, "name", getattr(k, "key", getattr(k, "idx", k)))) for k in keys
        )

    def values(leaf: Any) -> Any:
        is_key = isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return np.asarray(jax.random.key_data(leaf) if is_key else leaf)

    return {text(k): values(v) for k, v in jax.tree_util.tree_leaves_with_path(tree)}


def edits(case: Case) -> list[Rescale]:
    return [
        Rescale(at=f"params/*/{policy}", by=FACTOR, optimizer=policy)
        for policy in POLICIES
        if policy not in case.refused
    ]


@pytest.mark.sampled(48)
@pytest.mark.parametrize("name", CASES)
def test_every_policy_does_to_a_state_what_the_table_says(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    params, state, scaled = trained(name)
    before = {"params": params, "opt_state": state}
    source, goal = tmp_path / "source", tmp_path / "goal"
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(source, before)
    edited = [policy for policy in POLICIES if policy not in case.refused]
    plan = plan_of(edits(case), optimizer_kind=case.kind)

    surgery.apply(str(source), str(goal), plan)

    # the script's own target restores it: containers, holes, dtypes and all
    target = jax.tree.map(ocp.utils.to_shape_dtype_struct, before)
    with ocp.StandardCheckpointer() as checkpointer:
        after = checkpointer.restore(goal, target)
    assert jax.tree.structure(after) == jax.tree.structure(before)
    assert metadata(goal) == metadata(source)

    new_params = times(params, FACTOR, *edited)
    assert_equal(leaves(after["params"]), leaves(new_params))
    check_slots(
        case, leaves(state), leaves(after["opt_state"]), leaves(scaled), fresh(name, new_params)
    )

    # and training goes on
    training = Training(name, *edited)
    grads = on_device(training.grads(new_params, drawn(np.random.default_rng(3))))
    updates, following = training.update(grads, unbound(after["opt_state"]), on_device(new_params))
    assert jax.tree.structure(following) == jax.tree.structure(state)
    for path, leaf in leaves(updates).items():
        assert np.all(np.isfinite(leaf)), path


def fresh(name: str, params: Tree) -> dict[str, Any]:
    """The optimizer's own initial state for these params."""
    start, own = leaves(optimizer(name).init(params)), leaves(params)
    for path in start:
        field, param = place(path)
        if field in CASES[name].previous:
            start[path] = own[param]
    return start


def place(path: str) -> tuple[str, str]:
    """The field of a state in which a slot stands, and its param; two empty texts for other leaves."""
    head, layer, tail = path.partition("/Dense_")
    return (head.split("/")[-1], (layer + tail)[1:]) if layer else ("", "")


def metadata(path: Path) -> Any:
    return json.loads((path / "_METADATA").read_text())["tree_metadata"]


def assert_equal(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for path, leaf in expected.items():
        assert found[path].dtype == leaf.dtype, path
        np.testing.assert_array_equal(found[path], leaf, err_msg=path)


def check_slots(
    case: Case,
    old: dict[str, Any],
    new: dict[str, Any],
    scaled: dict[str, Any],
    start: dict[str, Any],
) -> None:
    """Compare every leaf of the optimizer state with what its group's policy makes of it."""
    worst = 0.0
    for path, leaf in new.items():
        field, param = place(path)
        group = param.split("/")[1] if param else ""
        policy = group if group in POLICIES and group not in case.refused else None
        if field == "found_nan":
            policy = None
        if policy is None or (policy == "keep" and field not in case.follows):
            expected = old[path]
        elif policy == "transform":
            worst = max(worst, distance(leaf, scaled[path]))
            continue
        elif field in case.follows:
            expected = start[path] if policy == "reset" else old[path] * np.float32(FACTOR)
        elif policy == "reset" or field not in case.squares:
            expected = start[path]
        else:
            expected = old[path]
        np.testing.assert_array_equal(leaf, expected, err_msg=path)
    assert worst <= case.error


def distance(found: Any, expected: Any) -> float:
    """The norm of the difference over that of the values; 0 if both are 0."""
    wide = expected.astype(np.float64)
    apart = np.linalg.norm(found.astype(np.float64) - wide)
    return float(apart / (np.linalg.norm(wide) or 1.0)) if apart else 0.0


@pytest.mark.parametrize(
    ("name", "policy"), [(n, p) for n, case in CASES.items() for p in case.refused]
)
def test_a_policy_that_cannot_be_followed_is_refused_and_nothing_is_written(
    name: str, policy: str, tmp_path: Path
) -> None:
    params = on_device(drawn(np.random.default_rng(2)))
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(
            tmp_path / "source",
            {"params": params, "opt_state": optimizer(name).init(params)},
        )
    plan = plan_of(
        [Rescale(at="params", by=FACTOR, optimizer=policy)], optimizer_kind=CASES[name].kind
    )
    with pytest.raises(SurgeryError, match=r"not known|no rule is known"):
        surgery.apply(str(tmp_path / "source"), str(tmp_path / "goal"), plan)
    assert not (tmp_path / "goal").exists()
