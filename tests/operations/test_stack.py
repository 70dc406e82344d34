"""Layers to one scanned leaf and back: exactly, with their slots, or a refusal that names what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import linen as nn

from surgery_cli import surgery
from surgery_cli.errors import PlanError
from surgery_cli.plan import plan_from_document

DEPTH, WIDTH = 11, 4


class Block(nn.Module):
    @nn.compact
    def __call__(self, x: Any, _: Any = None) -> Any:
        return x + nn.tanh(nn.Dense(WIDTH)(x)), None


class Unrolled(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        for n in range(DEPTH):
            x, _ = Block(name=f"layers_{n}")(x)
        return nn.Dense(1, name="head")(x)


class Scanned(nn.Module):
    axis: int

    @nn.compact
    def __call__(self, x: Any) -> Any:
        axes = {"params": self.axis}
        scanned = nn.scan(Block, axes, split_rngs={"params": True}, length=DEPTH)
        x, _ = scanned(name="layers")(x, None)
        return nn.Dense(1, name="head")(x)


X = np.random.default_rng(0).normal(size=(8, WIDTH)).astype(np.float32)
Y = X.sum(1, keepdims=True)


def trained(model: nn.Module, state: Any, tx: Any, steps: int) -> Any:
    def loss(params: Any) -> Any:
        return jnp.mean((model.apply({"params": params}, X) - Y) ** 2)

    params, opt_state = state["params"], state["opt_state"]
    for _ in range(steps):
        updates, opt_state = tx.update(jax.grad(loss)(params), opt_state, params)
        params = optax.apply_updates(params, updates)
    return {"params": params, "opt_state": opt_state}


def fresh(model: nn.Module, tx: Any) -> Any:
    params = model.init(jax.random.key(0), X)["params"]
    return {"params": params, "opt_state": tx.init(params)}


def saved(path: Path, state: Any) -> str:
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, state)
    return str(path)


def restored(path: Path, like: Any) -> Any:
    with ocp.StandardCheckpointer() as checkpointer:
        return checkpointer.restore(path, jax.tree.map(ocp.utils.to_shape_dtype_struct, like))


def applied(source: Path | str, to: Path, *edits: dict[str, Any]) -> str:
    surgery.apply(str(source), str(to), plan_from_document({"edits": list(edits)}))
    return str(to)


def equal(one: Any, other: Any) -> None:
    jax.tree.map(np.testing.assert_array_equal, one, other)


def close(one: Any, other: Any) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 2e-3, 1e-5), one, other)


STACK = {"op": "stack", "at": f"params/layers_{{0..{DEPTH - 1}}}", "to": "params/layers"}
UNSTACK = {"op": "unstack", "at": "params/layers", "to": STACK["at"]}


@pytest.mark.parametrize("axis", [0, 1])
def test_a_scanned_model_goes_on_where_the_unrolled_one_stood(axis: int, tmp_path: Path) -> None:
    tx = optax.adamw(1e-2)
    unrolled, scanned = Unrolled(), Scanned(axis)
    before = trained(unrolled, fresh(unrolled, tx), tx, 3)
    saved(tmp_path / "a", before)
    applied(tmp_path / "a", tmp_path / "b", {**STACK, "axis": axis})
    after = restored(tmp_path / "b", fresh(scanned, tx))
    np.testing.assert_allclose(
        scanned.apply({"params": after["params"]}, X),
        unrolled.apply({"params": before["params"]}, X),
        1e-5,
    )
    applied(tmp_path / "b", tmp_path / "c", {**UNSTACK, "axis": axis})
    equal(restored(tmp_path / "c", before), before)
    saved(tmp_path / "d", trained(scanned, after, tx, 3))  # steps of one are steps of the other
    applied(tmp_path / "d", tmp_path / "e", {**UNSTACK, "axis": axis})
    close(restored(tmp_path / "e", before), trained(unrolled, before, tx, 3))


def tree(count: int = 3, **others: Any) -> dict[str, Any]:
    layers = {f"layers_{n}": {"w": np.full((2, 3), n), "b": np.full(3, n)} for n in range(count)}
    return {"params": {**layers, **others}}


@pytest.mark.parametrize(
    ("change", "edit", "said"),
    [
        (
            lambda p: p.pop("layers_2"),
            {"at": "params/layers_{0..4}"},
            "'params/layers_2' is not there",
        ),
        (lambda p: p.pop("layers_2"), {"at": "params/layers_*"}, "'params/layers_2' is not there"),
        (
            lambda p: [p[f"layers_{n}"].pop("b") for n in (1, 3)],
            {},
            "'params/layers_{1,3}/b' are not there",
        ),
        (
            lambda p: p["layers_3"].update(w=np.ones((2, 4))),
            {},
            r"'params/layers_3/w' is float64[2,4], and others of its kind are int64[2,3]",
        ),
        (lambda p: p.update(layers={"w": 1}), {}, "'params/layers/w' stands there already"),
        (
            lambda p: None,
            {"at": "params/layers_0", "to": "params/x"},
            "'params/layers_0' names nothing that could be joined",
        ),
        (lambda p: None, {"at": "params/*/w"}, "does not say in which order its leaves go"),
        (
            lambda p: None,
            {"at": "params/layers_*/*", "to": "params/x"},
            "differs in 2 places from one leaf to the next",
        ),
        (lambda p: None, {"axis": 3}, "axis: 3"),
        (
            lambda p: p.update(layers_5={"w": np.ones(1)}),
            {"at": ["params/layers_{0..4}", "params/layers_{3..4}"]},
            "is named by two patterns",
        ),
        (
            lambda p: p["layers_0"].update(w="text"),
            {"at": "params/layers_*/w"},
            "others of its kind",
        ),
    ],
)
def test_what_cannot_be_stacked_is_named(
    change: Any, edit: dict[str, Any], said: str, tmp_path: Path
) -> None:
    state = tree(5, other={"w": np.ones((2, 3))})
    change(state["params"])
    ocp.PyTreeCheckpointer().save(tmp_path / "a", state)
    document = {"edits": [{"op": "stack", "at": "params/layers_*", "to": "params/layers", **edit}]}
    with pytest.raises(PlanError) as refused:
        surgery.plan(str(tmp_path / "a"), plan_from_document(document))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ({"to": "params/l_{0..3}"}, "`to` names 4 places for int64[3,"),
        ({"to": "params/l_{0..2}", "axis": 2}, "axis: 2"),
        ({"to": "params/l_{0..2}_{0..2}"}, "has 2 ranges of numbers"),
        ({"to": ["params/x", "params/x", "params/y"]}, "two parts would stand at one place"),
        ({"to": ["params/x", "params/y", "params/other"]}, "'params/other/w' stands there already"),
        ({"to": ["params/x", "params/y", "params/z"], "list": True}, "needs a range of numbers"),
    ],
)
def test_what_cannot_be_unstacked_is_named(edit: dict[str, Any], said: str, tmp_path: Path) -> None:
    state = {"params": {"l": {"w": np.ones((3, 2), int), "b": np.ones((3, 1), int)}}}
    state["params"]["other"] = {"w": np.ones(1)}
    ocp.PyTreeCheckpointer().save(tmp_path / "a", state)
    document = {"edits": [{"op": "unstack", "at": "params/l", **edit}]}
    with pytest.raises(PlanError) as refused:
        surgery.plan(str(tmp_path / "a"), plan_from_document(document))
    assert said in str(refused.value)
