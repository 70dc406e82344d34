"""The oracle for powers: an optimizer that was fed g/c has the slots of one fed g, each times its power of c."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from optax import contrib

from surgery_cli.optimizer.detect.survey import survey
from surgery_cli.tree.paths import LeafPath
from tests.installed import installed
from tests.optimizer.optax_registry import tree_of

STEPS = 12
INSIDE_EPSILON = {"sm3": 1e-3}
"""Relative tolerance where an epsilon cannot be switched off: sm3 adds 1e-8 before its root."""
SHAPES = {"bias": (5,), "kernel": (4, 5)}

# name in `optimizer_kind:`, and the optimizer without epsilons, which are no power of anything
ORACLES: dict[str, tuple[str | None, Callable[[], Any]]] = {
    "adam": ("adam", lambda: optax.adam(1e-2, eps=0.0)),
    "nadam": ("nadam", lambda: optax.nadam(1e-2, eps=0.0)),
    "amsgrad": (None, lambda: optax.amsgrad(1e-2, eps=0.0)),
    "adabelief": ("adabelief", lambda: optax.adabelief(1e-2, eps=0.0, eps_root=0.0)),
    "adamax": ("adamax", lambda: optax.adamax(1e-2, eps=0.0)),
    "adopt": ("adopt", lambda: contrib.adopt(1e-2, eps=0.0, use_clipping=False)),
    "lion": (None, lambda: optax.lion(1e-2, weight_decay=0.0)),
    "rmsprop": (None, lambda: optax.rmsprop(1e-2, eps=0.0)),
    "rmsprop with momentum": ("rmsprop", lambda: optax.rmsprop(1e-2, eps=0.0, momentum=0.9)),
    "rmsprop, centered": (None, lambda: optax.rmsprop(1e-2, eps=0.0, centered=True)),
    "adagrad": (None, lambda: optax.adagrad(1e-2, initial_accumulator_value=0.0, eps=0.0)),
    "novograd": (None, lambda: optax.novograd(1e-2, eps=0.0)),
    "sm3": (None, lambda: optax.sm3(1e-2)),
    "momentum": (None, lambda: optax.sgd(1e-2, momentum=0.9)),
    "signum": (None, lambda: installed(optax, "signum")(1e-2)),
    "adan": (None, lambda: optax.adan(1e-2, eps=0.0, eps_root=0.0)),
    "ademamix": (None, lambda: contrib.ademamix(1e-2, eps=0.0)),
    "simplified ademamix": (None, lambda: contrib.simplified_ademamix(1e-2, eps=0.0)),
    "lars": ("lars", lambda: optax.lars(1e-2, momentum=0.9)),
    "lamb": ("lamb", lambda: optax.lamb(1e-2, eps=0.0)),
    "adafactor": (
        None,
        lambda: optax.adafactor(1e-2, min_dim_size_to_factor=2, eps=0.0, clipping_threshold=None),
    ),
    "optimistic": (None, lambda: optax.optimistic_gradient_descent(1e-2)),
    "accumulated": ("adam", lambda: optax.MultiSteps(optax.adam(1e-2, eps=0.0), 5)),
    "clipped, but not actively": (
        "adam",
        lambda: optax.chain(optax.clip_by_global_norm(1e9), optax.adam(1e-2, eps=0.0)),
    ),
}


@cache
def _fed(optimizer: Any, factor: float) -> tuple[Any, Any]:
    """Params and the state after some steps; one param is ``factor`` times larger, its gradients as much smaller."""
    draws = np.random.default_rng(0)
    scale = {"bias": 1.0, "kernel": factor}
    params = {k: jnp.asarray(draws.normal(size=s) * scale[k]) for k, s in SHAPES.items()}
    state = optimizer.init(params)
    for _ in range(STEPS):
        grads = {k: jnp.asarray(draws.normal(size=s) / scale[k]) for k, s in SHAPES.items()}
        _, state = optimizer.update(grads, state, params)
    return params, state


def _leaves(tree: Any) -> dict[str, Any]:
    def text(keys: Any) -> str:
        return "/".join(
            str(getattr(k, "name", getattr(k, "key", getattr(k, "idx", k)))) for k in keys
        )

    return {text(k): np.asarray(v) for k, v in jax.tree_util.tree_leaves_with_path(tree)}


@pytest.mark.sampled(8)
@pytest.mark.covers(1)
@pytest.mark.parametrize("factor", [0.125, -4.0])
@pytest.mark.parametrize("name", sorted(ORACLES))
def test_every_slot_follows_a_factor_by_its_power(name: str, factor: float) -> None:
    kind, make = ORACLES[name]
    optimizer = make()
    with jax.enable_x64(True):
        params, plain = _fed(optimizer, 1.0)
        _, scaled = _fed(optimizer, factor)
        before, after = _leaves({"opt_state": plain}), _leaves({"opt_state": scaled})
    tree = tree_of({"params": params, "opt_state": plain})
    slots = survey(tree, kind=kind).slots
    followed = [s for s in slots.values() if s.param == LeafPath(("params", "kernel"))]
    assert followed
    for slot in followed:
        assert slot.power is not None
        sign = 1.0 if slot.is_even or factor > 0 else -1.0
        expected = sign * abs(factor) ** slot.power * before[str(slot.path)]
        np.testing.assert_allclose(
            after[str(slot.path)],
            expected,
            rtol=INSIDE_EPSILON.get(name, 1e-9),
            err_msg=str(slot.path),
        )
