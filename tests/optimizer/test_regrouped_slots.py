"""Slots of params that became one, or parts of one: optax's own state of the new params says what each must be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import PlanError
from surgery_cli.planning import plan_from_document

POLICIES = ("keep", "transform", "reset", "warm")
LEAST = 6
FACTORED = {"min_dim_size_to_factor": LEAST, "multiply_by_parameter_scale": False}
SHOWN = {"factored": np.ones((LEAST, LEAST)), "whole": np.ones((LEAST - 1, 9))}
"""Params that show from where on Adafactor takes a moment apart."""


class Edit(NamedTuple):
    """An edit from leaves of these shapes, and what NumPy makes of them."""

    fields: dict[str, Any]
    shapes: Sequence[tuple[int, ...]]
    change: Callable[[Sequence[Any]], Sequence[Any]]


def interleaved(parts: Sequence[Any], groups: int) -> Any:
    """Side by side along the last axis, a share of each in every group."""
    shares = [np.split(part, groups, -1) for part in parts]
    return np.concatenate([share[n] for n in range(groups) for share in shares], -1)


def deinterleaved(whole: Any, sizes: Sequence[int], groups: int) -> list[Any]:
    cuts = np.cumsum([size // groups for size in sizes])[:-1]
    pieces = [np.split(group, cuts, -1) for group in np.split(whole, groups, -1)]
    return [np.concatenate([piece[n] for piece in pieces], -1) for n in range(len(sizes))]


EDITS = {
    "stack": Edit(
        {"op": "stack", "axis": 0}, [(9, 6)] * 3, lambda xs: [np.stack(xs)]
    ),
    "stack, inner": Edit(
        {"op": "stack", "axis": 1}, [(7, 6)] * 3, lambda xs: [np.stack(xs, 1)]
    ),
    "stack, factored then": Edit(
        {"op": "stack", "axis": 0}, [(5, 9)] * 7, lambda xs: [np.stack(xs)]
    ),
    "unstack": Edit({"op": "unstack"}, [(3, 9, 6)], lambda xs: [*xs[0]]),
    "unstack, factored before": Edit(
        {"op": "unstack", "axis": -1}, [(4, 8, 7)], lambda xs: [*np.moveaxis(xs[0], -1, 0)]
    ),
    "concat": Edit(
        {"op": "concat", "axis": -1, "groups": 2},
        [(8, 12), (8, 4), (8, 4)],
        lambda xs: [interleaved(xs, 2)],
    ),
    "concat, rows": Edit(
        {"op": "concat", "axis": 0}, [(8, 6), (2, 6)], lambda xs: [np.concatenate(xs)]
    ),
    "split": Edit(
        {"op": "split", "axis": -1, "sizes": [12, 4, 4], "groups": 2},
        [(8, 20)],
        lambda xs: deinterleaved(xs[0], (12, 4, 4), 2),
    ),
    "split, biases": Edit({"op": "split", "axis": 0}, [(9,)], lambda xs: np.split(xs[0], 3)),
}  # fmt: skip

OPTIMIZERS: dict[str, Any] = {
    "adamw": optax.adamw(1e-2),
    "adafactor": optax.adafactor(1e-2, momentum=0.9, **FACTORED),
    "schedule-free": optax.contrib.schedule_free_sgd(1e-2),
    "lbfgs": optax.scale_by_lbfgs(memory_size=2),
}


def named(leaves: Sequence[Any]) -> dict[str, Any]:
    return {"p": leaves[0]} if len(leaves) == 1 else {f"p{n}": x for n, x in enumerate(leaves)}


def trained(tx: Any, shapes: Sequence[tuple[int, ...]], change: Callable[[Any], Any]) -> Any:
    """A few steps, all gradients as an edit would have them."""
    rng = np.random.default_rng(0)

    def drawn() -> Any:
        leaves = named(change([rng.normal(size=shape) for shape in shapes]))
        return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), {"x": leaves, **SHOWN})

    params = drawn()
    state, update = tx.init(params), jax.jit(tx.update)
    for _ in range(3):
        updates, state = update(drawn(), state, params)
        params = optax.apply_updates(params, updates)
    return {"params": params, "opt_state": state}


def shared_out(tree: Any) -> Any:
    """The same params, and what a state has of them, once for every policy."""

    def has_params(node: Any) -> bool:
        return isinstance(node, dict) and "x" in node

    def many(node: Any) -> Any:
        if not has_params(node):
            return node
        rest = {key: child for key, child in node.items() if key != "x"}
        return rest | dict.fromkeys(POLICIES, node["x"])

    return jax.tree.map(many, tree, is_leaf=has_params)


def slots_of(state: Any, policy: str) -> dict[tuple[str, str], np.ndarray]:
    """The slots of the params of a policy: by the field that holds them, and the param."""
    found = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]:
        keys = [getattr(key, "key", None) for key in path]
        if policy in keys:
            at = keys.index(policy)
            found[jax.tree_util.keystr(path[:at]), keys[at + 1]] = np.asarray(leaf)
    return found


def axes_of(shape: tuple[int, ...]) -> tuple[int, int] | None:
    """The axes over which Adafactor takes means of rows and columns, as its paper and optax say; None if of none."""
    order = np.argsort(shape)
    if len(shape) < 2 or shape[order[-2]] < LEAST:
        return None
    return int(order[-1]), int(order[-2])


def in_full(row: Any, column: Any, whole: Any, shape: tuple[int, ...]) -> Any:
    axes = axes_of(shape)
    if axes is None:
        return whole
    first, second = axes
    rows = np.expand_dims(row.astype(float), first)
    return rows / rows.mean(second, keepdims=True) * np.expand_dims(column, second)


def expected(old: dict[Any, Any], edit: Edit) -> dict[Any, Any]:
    """What NumPy says of the slots after the edit, under a policy that keeps them."""
    names = list(named(edit.shapes))
    fields = dict.fromkeys(field for field, _ in old)
    found = {}
    parts = {f.rsplit(".", 1)[-1].split("[")[0]: f for f in fields}
    if "v_row" in parts:
        row, column, whole = (parts[name] for name in ("v_row", "v_col", "v"))
        moments = [
            in_full(old[row, n], old[column, n], old[whole, n], shape)
            for n, shape in zip(names, edit.shapes, strict=True)
        ]
        news = named(edit.change(moments))
        for name, moment in news.items():
            axes = axes_of(moment.shape)
            means = [np.zeros(1)] * 2 if axes is None else [moment.mean(axis) for axis in axes]
            found |= dict(zip([(row, name), (column, name)], means, strict=True))
            found[whole, name] = moment if axes is None else np.zeros(1)
        fields = dict.fromkeys(f for f in fields if f not in (row, column, whole))
    for field in fields:
        slots = [old[field, name] for name in names]
        if slots[0].ndim > len(edit.shapes[0]):  # stacked
            each = [edit.change(list(one)) for one in zip(*slots, strict=True)]
            made = [np.stack(one) for one in zip(*each, strict=True)]
        else:
            made = edit.change(slots)
        found |= {(field, name): slot for name, slot in named(made).items()}
    return found


SOME = ("stack, inner", "unstack", "concat", "split")
CASES = [(o, e) for o in OPTIMIZERS for e in EDITS if o == "adafactor" or e in SOME]


@pytest.mark.sampled(4)
@pytest.mark.covers(1)
@pytest.mark.parametrize(("optimizer", "name"), CASES)
def test_every_slot_is_as_optax_would_have_it(optimizer: str, name: str, tmp_path: Path) -> None:
    tx, edit = OPTIMIZERS[optimizer], EDITS[name]
    once = trained(tx, edit.shapes, lambda leaves: leaves)
    before = shared_out(once)
    news = named(edit.change([np.asarray(x) for x in once["params"]["x"].values()]))
    params = shared_out({"x": news, **SHOWN})
    old = [*named(edit.shapes)]
    plan = [
        {
            **edit.fields,
            "at": [f"params/{policy}/{key}" for key in old],
            "to": f"params/{policy}/p"
            if len(news) == 1
            else [f"params/{policy}/{n}" for n in news],
            "optimizer": policy,
        }
        for policy in POLICIES
    ]
    fresh = tx.init(jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), params))
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "before", before)
        checkpointer.wait_until_finished()
        source, result = str(tmp_path / "before"), str(tmp_path / "after")
        surgery.apply(source, result, plan_from_document({"edits": plan}))
        target = {"params": before["params"] | params, "opt_state": fresh}
        target["params"] = params
        target = jax.tree.map(ocp.utils.to_shape_dtype_struct, target)
        target["params"] = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(np.shape(x), np.float32), params
        )
        found = checkpointer.restore(tmp_path / "after", target)
    again = None if optimizer in ("adafactor", "lbfgs") else trained(tx, edit.shapes, edit.change)
    for policy in POLICIES:
        for key, leaf in news.items():
            np.testing.assert_array_equal(found["params"][policy][key], leaf)
        slots, start = slots_of(found["opt_state"], policy), slots_of(fresh, policy)
        model = expected(slots_of(before["opt_state"], policy), edit)
        assert slots.keys() == start.keys() == model.keys()
        for at, slot in slots.items():
            said = f"{policy}: {at}"
            is_square = any(at[0].endswith(f".{field}") for field in ("nu", "v", "v_row", "v_col"))
            is_copy = at[0].endswith((".z", ".params"))
            if is_copy and policy == "reset":
                np.testing.assert_array_equal(slot, news[at[1]], said)
            elif policy == "reset" or (policy == "warm" and not (is_square or is_copy)):
                np.testing.assert_array_equal(slot, start[at], said)
            else:
                np.testing.assert_allclose(slot, model[at], 2e-6, 1e-9, err_msg=said)
        if again is not None and policy in ("keep", "transform"):
            trained_so = slots_of(shared_out(again["opt_state"]), policy)
            for at, slot in slots.items():
                np.testing.assert_allclose(slot, trained_so[at], 2e-5, 1e-6, err_msg=str(at))


STACK = {"op": "stack", "at": "params/x/p{0..2}", "to": "params/x/p"}


def stepped(tx: Any, tmp_path: Path) -> str:
    """A checkpoint of three params of one shape after a step."""
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "a", trained(tx, [(9, 6)] * 3, lambda leaves: leaves))
    return str(tmp_path / "a")


def test_one_number_for_a_leaf_is_not_shared_but_may_restart(tmp_path: Path) -> None:
    tx = optax.novograd(1e-2)
    source = stepped(tx, tmp_path)
    for policy in ("transform", "keep", "warm"):
        plan = plan_from_document({"edits": [{**STACK, "optimizer": policy}]})
        with pytest.raises(PlanError, match="one number for a whole leaf") as refused:
            surgery.plan(source, plan)
        assert "optimizer: reset" in refused.value.problems[0].fix
    plan = plan_from_document(
        {"edits": [{**STACK, "optimizer": "reset"}, {"op": "reset-optimizer", "clocks": True}]}
    )
    surgery.apply(source, str(tmp_path / "b"), plan)
    fresh = tx.init({"x": {"p": jnp.zeros((3, 9, 6))}, **jax.tree.map(jnp.asarray, SHOWN)})
    with ocp.StandardCheckpointer() as checkpointer:
        found = checkpointer.restore(tmp_path / "b")
    assert np.shape(found["opt_state"][0]["nu"]["x"]["p"]) == fresh[0].nu["x"]["p"].shape == ()
    assert not np.any(found["opt_state"][0]["mu"]["x"]["p"])


def test_vectors_for_the_axes_have_no_rule_for_new_ones(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="the edit makes other axes"):
        surgery.plan(stepped(optax.sm3(1e-2), tmp_path), plan_from_document({"edits": [STACK]}))


@pytest.mark.parametrize("held", [("p0", "p1", "p2"), ("p0", "p2"), ()])
def test_params_that_the_optimizer_treats_alike_share_its_holes(held: Any, tmp_path: Path) -> None:
    def mask(params: Any) -> Any:
        return {k: {n: n in held for n in v} if k == "x" else True for k, v in params.items()}

    source = stepped(optax.masked(optax.adam(1e-2), mask), tmp_path)
    plan = plan_from_document({"edits": [STACK]})
    if len(held) == 2:
        with pytest.raises(PlanError, match="'params/x/p0' and 'params/x/p1' cannot share one"):
            surgery.plan(source, plan)
        return
    surgery.apply(source, str(tmp_path / "b"), plan)
    tx = optax.masked(optax.adam(1e-2), {"x": {"p": bool(held)}, **dict.fromkeys(SHOWN, True)})
    params = {"x": {"p": jnp.zeros((3, 9, 6))}, **jax.tree.map(jnp.asarray, SHOWN)}
    with ocp.StandardCheckpointer() as checkpointer:
        target = {"params": params, "opt_state": tx.init(params)}
        target = jax.tree.map(ocp.utils.to_shape_dtype_struct, target)
        checkpointer.restore(tmp_path / "b", target)
