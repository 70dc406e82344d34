"""Add: new leaves and subtrees at new places, with the slots that the optimizer would start them with."""

from __future__ import annotations

import re
from collections.abc import Mapping
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
from surgery_cli.operations.add import Add
from surgery_cli.operations.rescale import Rescale
from surgery_cli.planning import plan_from_document, plan_of
from tests.optimizer.optax_registry import train_state
from tests.optimizer.test_new_shapes import LAYERS, TRAINED, drafted, start, step, values_of
from tests.training import compiled_init

TREE = train_state("adam")


def saved(path: Path, state: Any) -> Path:
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, state)
    return path


def restored(path: Path, like: Any) -> Any:
    target = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
    with ocp.StandardCheckpointer() as checkpointer:
        return checkpointer.restore(path, target)


def said(*edits: Add, **shared: Any) -> list[str]:
    with pytest.raises(PlanError) as caught:
        drafted(TREE, *edits, **shared)
    return [f"{problem.what}; {problem.why}; {problem.fix}" for problem in caught.value.problems]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["adafactor", "sm3", "muon", "schedule_free", "multisteps"])
def test_a_model_with_one_more_layer_is_restored_and_trained_on(name: str, tmp_path: Path) -> None:
    tx, init = TRAINED[name], compiled_init(TRAINED[name])
    state = {"params": start(LAYERS), "ema": start(LAYERS)}
    state = step(tx, {**state, "opt_state": init(state["params"])}, 1)
    source = saved(tmp_path / "source", state)
    edit = Add(at="params/more", like="params/head", init="lecun_normal", bias_init="zeros")
    surgery.apply(str(source), str(tmp_path / "grown"), plan_of([edit]))
    new = start({**LAYERS, "more": LAYERS["head"]})
    target = {"params": new, "ema": new, "opt_state": init(new)}
    found = restored(tmp_path / "grown", target)
    params = found["params"]
    own = {"params": params, "ema": params, "opt_state": init(params)}
    fresh, old = values_of(own), values_of(state)
    for path, leaf in values_of(found).items():
        expected = fresh[path] if "/more" in path else old[path]
        np.testing.assert_array_equal(leaf, expected, path)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(step(tx, found, 2)["params"]))


def test_what_is_said_of_a_leaf_is_what_it_is() -> None:
    edit = Add(at="params/Dense_0/scale", shape=(6,), dtype="float32", init="ones")
    draft = drafted(TREE, edit)
    added = {str(p): draft.tree[p].type_text for p in draft.changed}
    assert added == {
        f"{root}/Dense_0/scale": "float32[6]"
        for root in ("params", "opt_state/0/mu", "opt_state/0/nu")
    }
    assert "slots of the new params are like those of 'params/Dense_0/bias'" in map(
        str, draft.notes
    )


def test_a_leaf_is_like_another_but_for_what_is_said() -> None:
    edit = Add(at="params/wide", like="params/Dense_1/kernel", shape=("*", 9), with_=0)
    draft = drafted(TREE, edit)
    assert {draft.tree[path].type_text for path in draft.changed} == {"float32[6,9]"}
    narrow = Add(at="params/low", like="params/Dense_1/kernel", dtype="bfloat16", init="normal")
    draft = drafted(TREE, narrow)
    assert {draft.tree[path].type_text for path in draft.changed} == {"bfloat16[6,3]"}
    assert any("taken to follow the dtype" in note for note in draft.notes)


def test_numbers_of_a_range_are_places_of_their_own() -> None:
    edit = Add(at="params/Dense_{2..4}", like="params/Dense_1", init="normal", bias_init="zeros")
    draft = drafted(TREE, edit)
    kernels = [str(path) for path in draft.changed if str(path).startswith("params/")]
    assert kernels == [f"params/Dense_{n}/{k}" for n in (2, 3, 4) for k in ("bias", "kernel")]
    assert len(draft.changed) == 18


def test_what_stands_there_is_an_error() -> None:
    for at in ("params/Dense_1", "params/Dense_1/kernel"):
        (problem,) = said(Add(at=at, like="params/Dense_0/kernel", with_=0))
        assert f"'{at}' is there already" in problem
    (problem,) = said(Add(at=("params/x", "params/x"), like="params/Dense_0", with_=0))
    assert "'params/x' is there already" in problem
    (problem,) = said(Add(at="params/Dense_1/kernel/x", like="params/Dense_0/bias", with_=0))
    assert "cannot stand below 'params/Dense_1/kernel'" in problem
    assert said(Add(at="step", like="params/Dense_0/bias", with_=0))
    (problem,) = said(Add(at="opt_state/0/more", like="params", with_=0))
    assert "a state of the optimizer" in problem


def test_what_is_not_said_is_asked_for() -> None:
    assert "does not say what the new leaves hold" in said(Add(at="params/x", like="params"))[0]
    assert "has both `init` and `with`" in said(Add(at="params/x", with_=0, init="ones"))[0]
    assert "nothing says what 'params/x' is" in said(Add(at="params/x", init="ones"))[0]
    assert (
        "the tree has no 'params/Dense_7'"
        in said(Add(at="params/x", like="params/Dense_7", init="ones"))[0]
    )
    assert (
        "no dtype that a leaf can have"
        in said(Add(at="params/x", shape=3, dtype="float31", init="ones"))[0]
    )
    assert "takes no" in said(Add(at="params/x", shape=3, init="ones", optimizer="keep"))[0]
    assert "takes no `expect`" in said(Add(at="params/x", init="ones", expect=1))[0]


@pytest.mark.parametrize("name", ["muon", "masked_adam"])
def test_states_that_choose_their_params_need_one_that_a_new_one_is_like(name: str) -> None:
    tree = train_state(name)
    edit = Add(at="params/Dense_2", shape=(4, 4), dtype="float32", init="normal")
    with pytest.raises(PlanError) as caught:
        drafted(tree, edit)
    (problem,) = caught.value.problems
    assert "they keep other slots for" in problem.why
    assert "`like: params/Dense_0/" in problem.fix
    like = Add(at="params/Dense_2", like="params/Dense_1/bias", shape=(4, 4), init="normal")
    with pytest.raises(PlanError, match="which states of the optimizer would have"):
        drafted(tree, like)


def test_second_moments_may_begin_at_the_mean_of_those_that_they_are_like(tmp_path: Path) -> None:
    tx = TRAINED["adamw"]
    state = {"params": start(LAYERS)}
    state = step(tx, {**state, "opt_state": tx.init(state["params"])}, 1)
    source = saved(tmp_path / "source", state)
    edit = Add(at="params/more", like="params/head", init="normal", optimizer="warm")
    surgery.apply(str(source), str(tmp_path / "grown"), plan_of([edit]))
    new = start({**LAYERS, "more": LAYERS["head"]})
    found = restored(tmp_path / "grown", {"params": new, "opt_state": tx.init(new)})
    for key in ("bias", "kernel"):
        mean = np.asarray(state["opt_state"][0].nu["head"][key], np.float64).mean()
        np.testing.assert_allclose(found["opt_state"][0].nu["more"][key], mean, 1e-6)
        assert not np.any(found["opt_state"][0].mu["more"][key])


def test_a_subtree_of_a_donor_comes_with_its_slots(tmp_path: Path) -> None:
    tx = optax.sgd(0.1, momentum=0.9)

    def state(shapes: Mapping[str, tuple[int, ...]], seed: int) -> Any:
        params = start(shapes)
        return step(tx, {"params": params, "opt_state": tx.init(params)}, seed)

    here = state({"a": (4, 3)}, 1)
    donor = state({"a": (4, 3), "tower": (3, 5)}, 2)
    source, other = saved(tmp_path / "here", here), saved(tmp_path / "donor", donor)
    plan = plan_of([Add(at="params/tower", with_=str(other))], optimizer_kind="sgd")
    report = surgery.apply(str(source), str(tmp_path / "both"), plan)
    assert report.bytes_written == 0
    found = restored(tmp_path / "both", donor)
    np.testing.assert_array_equal(found["params"]["a"]["kernel"], here["params"]["a"]["kernel"])
    for tree in ("params", "opt_state"):
        expected = values_of(donor[tree])
        for path, leaf in values_of(found[tree]).items():
            if "tower" in path:
                np.testing.assert_array_equal(leaf, expected[path], path)


def test_arrays_of_files_are_added(tmp_path: Path) -> None:
    state = {"params": {"w": jnp.ones((2, 2))}}
    source = saved(tmp_path / "source", state)
    np.save(tmp_path / "b.npy", np.arange(3.0, dtype=np.float32))
    np.savez(tmp_path / "c.npz", one=np.full((2,), 7, np.int32))
    edits = [
        Add(at="params/b", with_=str(tmp_path / "b.npy")),
        Add(at="params/c", with_=f"{tmp_path / 'c.npz'}:one", kind="numpy"),
        Add(at="params/d", with_=str(tmp_path / "b.npy"), dtype="bfloat16", cast=True),
    ]
    surgery.apply(str(source), str(tmp_path / "new"), plan_of(edits))
    with ocp.StandardCheckpointer() as checkpointer:
        found = checkpointer.restore(tmp_path / "new")["params"]
    np.testing.assert_array_equal(found["b"], [0, 1, 2])
    np.testing.assert_array_equal(found["c"], [7, 7])
    assert found["d"].dtype == jnp.bfloat16
    assert not isinstance(found["c"], jax.Array)


def test_an_element_is_added_at_the_end_of_a_list(tmp_path: Path) -> None:
    tx = optax.adam(1e-3)
    params = {"layers": [{"w": jnp.ones((2, 3))}, {"w": jnp.ones((2, 3))}]}
    source = saved(tmp_path / "source", {"params": params, "opt_state": tx.init(params)})
    edit = Add(at="params/layers/2", like="params/layers/1", init="zeros")
    surgery.apply(str(source), str(tmp_path / "new"), plan_of([edit]))
    new = {"layers": [*params["layers"], {"w": jnp.zeros((2, 3))}]}
    found = restored(tmp_path / "new", {"params": new, "opt_state": tx.init(new)})
    np.testing.assert_array_equal(found["params"]["layers"][2]["w"], np.zeros((2, 3)))
    hole = Add(at="params/layers/5", like="params/layers/1", init="zeros")
    with pytest.raises(PlanError, match="layers"):
        surgery.apply(str(source), str(tmp_path / "hole"), plan_of([hole]))


def test_empty_containers_among_params_stand_in_their_moments_too(tmp_path: Path) -> None:
    tx = optax.adam(1e-3)
    params = {"a": {"w": jnp.ones((2, 3)), "none": {}}}
    source = saved(tmp_path / "source", {"params": params, "opt_state": tx.init(params)})
    edit = Add(at="params/b", like="params/a", init="zeros")
    surgery.apply(str(source), str(tmp_path / "new"), plan_of([edit]))
    new = {**params, "b": {"w": jnp.zeros((2, 3)), "none": {}}}
    found = restored(tmp_path / "new", {"params": new, "opt_state": tx.init(new)})
    assert found["opt_state"][0].mu["b"]["none"] == {}


def test_a_later_edit_finds_the_slots_of_what_was_added() -> None:
    add = Add(at="params/Dense_2", like="params/Dense_1", init="normal", bias_init="zeros")
    draft = drafted(TREE, add, Rescale(at="params/Dense_2/kernel", by=0.5), optimizer_kind="adam")
    slot = next(s for p, s in draft.slots.items() if str(p) == "opt_state/0/nu/Dense_2/kernel")
    assert str(slot.param) == "params/Dense_2/kernel"


def test_the_report_counts_what_comes_and_the_inverse_takes_it_away(tmp_path: Path) -> None:
    tx = optax.adam(1e-3)
    params = start({"Dense_0": (4, 3)})
    source = saved(tmp_path / "source", {"params": params, "opt_state": tx.init(params)})
    edit = Add(at="params/Dense_1", like="params/Dense_0", init="normal", bias_init="zeros")
    report = surgery.apply(str(source), str(tmp_path / "new"), plan_of([edit]))
    (done,) = report.edits
    assert (done.leaves, done.twins) == (2, {"reset": 4})
    back = surgery.inverse(str(tmp_path / "new"))
    assert [entry["op"] for entry in back.plan["edits"]] == ["delete"]


def test_which_states_have_new_params_is_asked_once_and_the_answer_can_be_pasted(
    tmp_path: Path,
) -> None:
    def layer() -> dict[str, Any]:
        return {"w": np.ones((3, 2), np.float32), "b": np.ones(2, np.float32)}

    params = {"embed": np.ones((5, 3), np.float32)} | {f"l{n}": layer() for n in range(4)}
    labels = {"embed": "one"} | {f"l{n}": {"w": "two", "b": "one"} for n in range(4)}
    tx = optax.multi_transform({"one": optax.sgd(0.1), "two": optax.sgd(0.1, 0.9)}, labels)
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "a", {"params": params, "opt_state": tx.init(params)})
    edit = {"op": "add", "at": "params/l{0..3}/gate/w", "shape": [3, 4], "dtype": "float32"}
    edit["init"] = "zeros"
    with pytest.raises(PlanError) as refused:
        surgery.plan(str(tmp_path / "a"), plan_from_document({"edits": [edit]}))
    (problem,) = refused.value.problems
    assert "'params/l{0..3}/gate/w'" in problem.what
    like = re.findall(r"`like: ([^`]*)`", problem.fix)
    assert like == ["params/l0/w", "params/embed"]
    for path in like:
        plan = plan_from_document({"edits": [{**edit, "like": path}]})
        moved = surgery.plan(str(tmp_path / "a"), plan).edits[0].twins
        assert moved == ({"moved": 4} if path == "params/embed" else {"reset": 4})
