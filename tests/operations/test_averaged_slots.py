"""An average takes slots along where kinds and counts agree: held against float64, and against training on means."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import PlanError
from surgery_cli.planning import plan_from_document
from surgery_cli.reports import Preview

Tree = dict[str, dict[str, Any]]
WEIGHTS = (3.0, 1.0)
STEPS = 6


def gradients(seed: int) -> list[Tree]:
    """Small against their mean, as those of a loss are, so that values tell Adam's family."""
    draws = np.random.default_rng(seed)
    shapes = {"a": {"w": (4, 3)}, "b": {"w": (6, 6)}}
    return [
        jax.tree.map(
            lambda shape: np.float32(0.01 + 0.005 * draws.normal(size=shape)),
            shapes,
            is_leaf=lambda node: isinstance(node, tuple),
        )
        for _ in range(STEPS)
    ]


def mean(one: Any, other: Any) -> Any:
    def of(a: Any, b: Any) -> Any:
        a, b = np.asarray(a), np.asarray(b)
        return ((WEIGHTS[0] * a.astype("f8") + WEIGHTS[1] * b) / sum(WEIGHTS)).astype(a.dtype)

    return jax.tree.map(of, one, other)


def trained(tx: Any, grads: list[Tree]) -> Any:
    params = jax.tree.map(jnp.ones_like, grads[0])
    state, update = tx.init(params), jax.jit(tx.update)
    for each in grads:
        updates, state = update(jax.tree.map(jnp.asarray, each), state, params)
        params = optax.apply_updates(params, updates)
    return {"params": params, "opt_state": state}


def saved(path: Path, state: Any) -> str:
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, state)
    return str(path)


def plan(source: str, member: str, **fields: Any) -> Any:
    edit = {"op": "average", "at": "params", "with": member, "optimizer": "transform", **fields}
    return plan_from_document({"edits": [edit]})


def previewed(source: str, member: str, **fields: Any) -> Preview:
    return surgery.plan(source, plan(source, member, **fields))


def averaged(folder: Path, one: Any, other: Any) -> Any:
    """What Orbax restores of the average, into the state of the first member."""
    source, member = saved(folder / "one", one), saved(folder / "other", other)
    report = surgery.apply(source, str(folder / "new"), plan(source, member, weights=list(WEIGHTS)))
    assert report.verified
    with ocp.StandardCheckpointer() as checkpointer:
        target = jax.tree.map(ocp.utils.to_shape_dtype_struct, one)
        return checkpointer.restore(folder / "new", target)


OPTIMIZERS: dict[str, tuple[Callable[[], Any], bool]] = {
    "momentum": (lambda: optax.sgd(1e-2, momentum=0.9), True),
    "nesterov": (lambda: optax.sgd(1e-2, momentum=0.9, nesterov=True), True),
    "lion": (lambda: optax.lion(1e-3), True),
    "adam": (lambda: optax.adam(1e-3), False),
    "amsgrad": (lambda: optax.amsgrad(1e-3), False),
    "novograd": (lambda: optax.novograd(1e-3), False),
    "adafactor": (lambda: optax.adafactor(1e-3, min_dim_size_to_factor=4), False),
    "multi": (
        lambda: optax.multi_transform(
            {"one": optax.sgd(1e-2, momentum=0.9), "two": optax.adam(1e-3)},
            {"a": "one", "b": "two"},
        ),
        False,
    ),
}
"""Factories, and whether all that they keep is linear in the gradients."""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_slot_is_the_mean_of_those_of_the_members_and_training_goes_on(
    name: str, tmp_path: Path
) -> None:
    make, is_linear = OPTIMIZERS[name]
    tx, grads = make(), (gradients(1), gradients(2))
    one, other = (trained(tx, each) for each in grads)
    found = averaged(tmp_path, one, other)
    jax.tree.map(np.testing.assert_array_equal, found, mean(one, other))
    updates, _ = tx.update(grads[0][0], found["opt_state"], found["params"])
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(updates))
    if is_linear:
        both = trained(tx, [mean(a, b) for a, b in zip(*grads, strict=True)])
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, 1e-5),
            found["opt_state"],
            both["opt_state"],
        )


def test_second_moments_are_those_of_the_mean_of_all_squares(tmp_path: Path) -> None:
    tx, grads = optax.adam(1e-3), (gradients(1), gradients(2))
    found = averaged(tmp_path, *(trained(tx, each) for each in grads))
    squares = [
        mean(*(jax.tree.map(np.square, g) for g in pair)) for pair in zip(*grads, strict=True)
    ]
    sizes = trained(tx, [jax.tree.map(np.sqrt, each) for each in squares])
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, 1e-5),
        found["opt_state"][0].nu,
        sizes["opt_state"][0].nu,
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("here", "there", "fields", "said"),
    [
        (optax.adam(1e-3), optax.adam(1e-3), {}, "counted 3 there, and 'opt_state/0/count' 6 here"),
        (optax.adam(1e-3), optax.adamax(1e-3), {}, "kind"),
        (optax.adam(1e-3), optax.sgd(1e-3), {}, "it has no optimizer state of such params"),
        (
            optax.adam(1e-3),
            None,
            {"weights": [2.0, -1.0]},
            "could make 'opt_state/0/nu/a/w' negative",
        ),
        (
            optax.scale_by_lbfgs(memory_size=2),
            None,
            {},
            "no rule is known for a diff_params_memory",
        ),
    ],
    ids=["counts", "kinds", "no state", "negative weights", "memories"],
)
def test_what_is_no_mean_is_refused_with_both_sides(
    here: Any, there: Any, fields: dict[str, Any], said: str, tmp_path: Path
) -> None:
    one = saved(tmp_path / "one", trained(here, gradients(1)))
    steps = gradients(2)[: 3 if said.startswith("counted") else STEPS]
    other = saved(tmp_path / "other", trained(there or here, steps))
    with pytest.raises(PlanError, match=r"average") as refused:
        previewed(one, other, **fields)
    assert said in str(refused.value)
    assert "'params/b/w'" not in str(refused.value)  # what is said of one param holds of all


def test_it_is_the_explicit_policy_alone_and_says_what_it_is(tmp_path: Path) -> None:
    tx = optax.sgd(1e-2, momentum=0.9)
    one, other = (saved(tmp_path / str(n), trained(tx, gradients(n))) for n in (1, 2))
    assert previewed(one, other).edits[0].twins == {"transform": 2}
    assert previewed(one, other, optimizer=None).edits[0].twins == {"reset": 2}


LAYERED: dict[str, Any] = {
    "adam": optax.adam(1e-2),
    "momentum": optax.sgd(1e-2, momentum=0.9),
    "average of updates": optax.chain(optax.ema(0.9), optax.adam(1e-2)),
    "multi-steps": optax.MultiSteps(optax.adam(1e-2), 2),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", LAYERED)
@pytest.mark.parametrize("op", ["average", "interpolate"])
def test_slots_go_by_the_number_of_the_layer_of_their_param(
    op: str, kind: str, tmp_path: Path
) -> None:
    """Numbers that differ from layer to layer: each layer's state is the mean by the weights of its params."""
    tx = LAYERED[kind]
    one, other = (
        trained(
            tx, [{f"layers_{n}": {"w": g["a"]["w"]} for n in range(3)} for g in gradients(seed)]
        )
        for seed in (1, 2)
    )
    source, member = saved(tmp_path / "one", one), saved(tmp_path / "other", other)
    number = {"weights": [[1, 0], [0, 1]]} if op == "average" else {"t": [0, 1]}
    edit = {"op": op, "at": "params/layers_*", "with": member, "optimizer": "transform", **number}
    report = surgery.apply(source, str(tmp_path / "new"), plan_from_document({"edits": [edit]}))
    assert report.verified
    with ocp.StandardCheckpointer() as checkpointer:
        target = jax.tree.map(ocp.utils.to_shape_dtype_struct, one)
        found = checkpointer.restore(tmp_path / "new", target)
    before, after = (
        {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree.leaves_with_path(tree)}
        for tree in (one, other)
    )
    seen = set()
    for path, leaf in jax.tree.leaves_with_path(found):
        name = jax.tree_util.keystr(path)
        layer = re.search(r"layers_(\d)", name)
        t = int(layer[1]) / 2 if layer else 0.0
        wanted = (1 - t) * np.asarray(before[name], "f8") + t * np.asarray(after[name], "f8")
        np.testing.assert_allclose(leaf, wanted.astype(leaf.dtype), rtol=1e-6, err_msg=name)
        seen.add(t)
    assert seen == {0.0, 0.5, 1.0}
