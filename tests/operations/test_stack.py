"""Layers to one scanned leaf and back: exactly, with their slots, or a refusal that names what is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import linen as nn
from flax import nnx

from surgery_cli import surgery
from surgery_cli.errors import PlanError
from surgery_cli.planning import plan_from_document
from tests.training import compiled_init, compiled_step

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


@cache
def gradients_of(model: nn.Module) -> Callable[[Any], Any]:
    def loss(params: Any) -> Any:
        return jnp.mean((model.apply({"params": params}, X) - Y) ** 2)

    return jax.jit(jax.grad(loss))


def trained(model: nn.Module, state: Any, tx: Any, steps: int) -> Any:
    params, opt_state = jax.tree.map(np.asarray, (state["params"], state["opt_state"]))
    for _ in range(steps):
        gradients = gradients_of(model)(params)
        params, opt_state = compiled_step(tx)(gradients, opt_state, params)
    return {"params": params, "opt_state": opt_state}


def fresh(model: nn.Module, tx: Any) -> Any:
    params = jax.jit(model.init)(jax.random.key(0), X)["params"]
    return {"params": params, "opt_state": compiled_init(tx)(params)}


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


TX = optax.adamw(1e-2)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("axis", [0, 1])
def test_a_scanned_model_goes_on_where_the_unrolled_one_stood(axis: int, tmp_path: Path) -> None:
    tx = TX
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
            lambda p: None,
            {"at": "params/layers_*/b", "axis": 9, "to": "params/layers/b"},
            "a stack of leaves with 1 axis has 2 axes: numbers from -2 to 1",
        ),
        (
            lambda p: None,
            {"at": "params/layers_*/w", "axis": -4, "to": "params/layers/w"},
            "a stack of leaves with 2 axes has 3 axes: numbers from -3 to 2",
        ),
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
        ({"to": "params/x"}, "`to` names 1 place for int64[3,"),
        ({"to": "params/l_{0..2}", "axis": 2}, "axis: 2"),
        ({"to": "params/l_{0..2}_{0..2}"}, "has 2 ranges of numbers"),
        ({"to": "params/l_{0..}", "axis": 1}, "there are 1 in 'params/l/b' and 2 in 'params/l/w'"),
        ({"to": "params/l_{0..}", "axis": 2}, "axis: 2"),
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


@pytest.mark.parametrize("name", ["unstack", "split"])
@pytest.mark.parametrize("placeholder", ["{i}", "{}", "{layer:02d}", "{0..x}", "*", "**"])
def test_a_placeholder_that_counts_nothing_is_answered_with_a_range_that_does(
    name: str, placeholder: str, tmp_path: Path
) -> None:
    ocp.PyTreeCheckpointer().save(tmp_path / "a", {"params": {"l": {"w": np.ones((3, 2))}}})
    to = f"params/l_{placeholder}"
    edit = {"op": name, "at": "params/l", "to": to, "axis": 0}
    with pytest.raises(PlanError) as refused:
        surgery.plan(str(tmp_path / "a"), plan_from_document({"edits": [edit]}))
    (problem,) = refused.value.problems
    assert problem.what == f"'{to}' names no place for each part"
    assert problem.field == "to"
    (meant,) = re.findall(r"`to: ([^`]*)`", problem.fix)
    preview = surgery.plan(
        str(tmp_path / "a"), plan_from_document({"edits": [{**edit, "to": meant}]})
    )
    assert [leaf.path for leaf in preview.leaves] == [f"params/l_{n}/w" for n in range(3)]


def test_an_open_range_has_as_many_numbers_as_there_are_layers(tmp_path: Path) -> None:
    saved(tmp_path / "a", {"params": {"l": {"w": np.arange(24).reshape(2, 12)}}})
    edit = {"op": "unstack", "at": "params/l", "axis": 1, "to": "params/{1..}/l"}
    applied(tmp_path / "a", tmp_path / "b", edit)
    layers = {str(n): {"l": {"w": np.array([n - 1, n + 11])}} for n in range(1, 13)}
    equal(restored(tmp_path / "b", {"params": layers}), {"params": layers})


def lists() -> Any:
    rng = np.random.default_rng(0)

    def layer(n: int) -> Any:
        keys = jax.random.split(jax.random.key(n), 2)
        arrays = {"w": rng.normal(size=(3, 4)).astype(np.float32), "bits": np.int8([n, -n])}
        return {**arrays, "gain": jnp.float32(n), "key": keys, "none": {}}

    params = {"layers": [layer(n) for n in range(3)], "head": np.ones(2, np.float32)}
    tx = optax.adam(1e-2)
    floats = {"layers": [{"w": one["w"]} for one in params["layers"]], "head": params["head"]}
    _, state = tx.update(floats, tx.init(floats), floats)
    return {"params": params, "opt_state": state}


def undone(result: str, to: Path) -> str:
    plan = surgery.inverse(result).plan
    surgery.apply(result, str(to), plan_from_document(plan))
    return str(to)


def test_elements_of_a_list_with_leaves_of_every_kind_are_stacked_and_come_back(
    tmp_path: Path,
) -> None:
    before = lists()
    source = str(tmp_path / "a")
    ocp.PyTreeCheckpointer().save(source, before)
    edit = {"op": "stack", "at": "params/layers/{0..2}", "to": "params/layers"}
    result = applied(source, tmp_path / "b", edit)
    found = ocp.PyTreeCheckpointer().restore(result)
    layers, old = found["params"]["layers"], before["params"]["layers"]
    np.testing.assert_array_equal(layers["w"], [one["w"] for one in old])
    np.testing.assert_array_equal(layers["bits"], [one["bits"] for one in old])
    np.testing.assert_array_equal(layers["gain"], [0, 1, 2])
    assert layers["none"] == {}
    keys = [jax.random.key_data(one["key"]) for one in old]
    np.testing.assert_array_equal(jax.random.key_data(layers["key"]), keys)
    for name in ("mu", "nu"):
        slots = [one["w"] for one in getattr(before["opt_state"][0], name)["layers"]]
        np.testing.assert_array_equal(found["opt_state"][0][name]["layers"]["w"], slots)
    assert surgery.inverse(result).plan["edits"] == [
        {
            "op": "unstack",
            "at": "params/layers",
            "to": "params/layers/{0..2}",
            "axis": 0,
            "list": True,
        }
    ]
    assert surgery.diff(source, undone(result, tmp_path / "c")).equal


def test_no_value_is_written_where_layers_have_chunks_of_their_own(tmp_path: Path) -> None:
    source = saved(tmp_path / "a", tree(12))
    for axis in (0, 1):
        plan = plan_from_document({"edits": [{**STACK, "at": "params/layers_*", "axis": axis}]})
        report = surgery.apply(source, str(tmp_path / f"b{axis}"), plan)
        assert report.bytes_written == 0
        layers = ocp.PyTreeCheckpointer().restore(tmp_path / f"b{axis}")["params"]["layers"]
        numbers = np.broadcast_to(np.arange(12)[:, None, None], (12, 2, 3))
        np.testing.assert_array_equal(layers["w"], np.moveaxis(numbers, 0, axis))


@pytest.mark.parametrize("op", ["stack", "concat"])
@pytest.mark.parametrize("seed", range(12))
def test_every_leaf_that_is_named_is_in_the_result_or_all_are_refused(
    op: str, seed: int, tmp_path: Path
) -> None:
    """Names draw their digits, so that numbers come twice (`1` and `01`, `enc_0` and `dec_0`)."""
    draw = np.random.default_rng(seed)
    names = {
        f"{draw.choice(['enc', 'dec'])}_{draw.choice(['0', '1', '2', '01', '02'])}" for _ in "abc"
    }
    params = {name: {"w": np.full((2, 2), n)} for n, name in enumerate(sorted(names))}
    ocp.PyTreeCheckpointer().save(tmp_path / "a", {"params": params})
    edit = {"op": op, "at": r"re:params/(?:enc|dec)_(\d+)/w", "to": "params/all", "axis": 0}
    numbers = [int(name[4:]) for name in names]
    document = plan_from_document({"edits": [edit]})
    if sorted(numbers) != [*range(min(numbers), min(numbers) + len(numbers))]:
        with pytest.raises(PlanError, match=r"both have the number|not there"):
            surgery.plan(str(tmp_path / "a"), document)
        return
    surgery.apply(str(tmp_path / "a"), str(tmp_path / "b"), document)
    restored = ocp.PyTreeCheckpointer().restore(tmp_path / "b")["params"]["all"]
    assert sorted({*np.asarray(restored).flat}) == [*range(len(names))]


def test_slots_that_were_reset_come_back_from_the_source(tmp_path: Path) -> None:
    tx = optax.adam(1e-2)
    model = Unrolled()
    source = saved(tmp_path / "a", trained(model, fresh(model, tx), tx, 2))
    rescaled = {"op": "rescale", "at": "params/layers", "by": 0.3, "optimizer": "keep"}
    for name, edits in (("reset", [{**STACK, "optimizer": "reset"}]), ("half", [STACK, rescaled])):
        result = applied(source, tmp_path / name, *edits)
        assert surgery.diff(source, undone(result, tmp_path / f"{name}, undone")).equal


@pytest.mark.parametrize("twins", ["named", "literal"])
def test_slots_that_are_named_are_stacked_as_named(twins: str, tmp_path: Path) -> None:
    tx = optax.adam(1e-2)
    model = Unrolled()
    source = saved(tmp_path / "a", fresh(model, tx))
    at = f"{{params,opt_state/0/mu,opt_state/0/nu}}/layers_{{0..{DEPTH - 1}}}"
    edit = {"op": "stack", "at": at, "to": r"\1/layers", "twins": twins}
    result = applied(source, tmp_path / "b", edit)
    restored(tmp_path / "b", fresh(Scanned(0), tx))
    assert surgery.diff(source, undone(result, tmp_path / "c")).equal
    with pytest.raises(PlanError, match=r"names '.*' and its twin"):
        surgery.plan(source, plan_from_document({"edits": [{**edit, "twins": "carried"}]}))


def test_a_count_of_the_optimizer_is_no_part_of_a_stack(tmp_path: Path) -> None:
    source = saved(tmp_path / "a", fresh(Unrolled(), optax.adam(1e-2)))
    edit = {"op": "unstack", "at": "opt_state/0/count", "to": "opt_state/0/count_{0..1}"}
    with pytest.raises(PlanError, match=r"counts steps for the optimizer|does not fit"):
        surgery.plan(source, plan_from_document({"edits": [edit]}))


def test_layers_of_an_nnx_model_are_stacked_with_their_values(tmp_path: Path) -> None:
    class Model(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.layers = nnx.Dict({f"l{n}": nnx.Linear(2, 3, rngs=rngs) for n in range(3)})

    model = Model(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
    state = {"model": nnx.state(model), "optimizer": nnx.state(optimizer)}
    source = saved(tmp_path / "a", state)
    edit = {"op": "stack", "at": "model/layers/l{0..2}", "to": "model/layers"}
    result = applied(source, tmp_path / "b", edit)
    found = ocp.StandardCheckpointer().restore(result)
    kernels = [state["model"]["layers"][f"l{n}"]["kernel"].get_value() for n in range(3)]
    np.testing.assert_array_equal(found["model"]["layers"]["kernel"]["value"], kernels)
    mu = found["optimizer"]["opt_state"]["0"]["mu"]["layers"]
    assert {name: leaf["value"].shape for name, leaf in mu.items()} == {
        "kernel": (3, 2, 3),
        "bias": (3, 3),
    }
    assert surgery.diff(source, undone(result, tmp_path / "c")).equal
