"""A setting that is stored must not become, by the edit's own rounding, one that ends training: optax is the judge."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import nnx

from surgery_cli import surgery
from surgery_cli.errors import PlanError, SurgeryError
from surgery_cli.planning import plan_from_document
from tests.installed import installed

NODE = "opt_state/hyperparams"
STEPS = 8


def drawn(number: int) -> dict[str, Any]:
    """Gradients, or the first params, of a model of two leaves."""
    draws = np.random.default_rng(number)
    return {"w": draws.normal(size=(6, 5)).astype(np.float32), "b": np.ones(5, np.float32)}


def trained(tx: Any, state: Any, params: Any, first: int = 0) -> tuple[Any, Any]:
    """State and params after further steps of optax's own."""
    update = jax.jit(tx.update)
    for number in range(first, first + STEPS):
        updates, state = update(drawn(100 + number), state, params)
        params = optax.apply_updates(params, updates)
    return state, params


def moved(before: Any, after: Any) -> float:
    """How far params went; NaN if any is."""
    return float(
        np.max([np.max(np.abs(np.asarray(after[name]) - before[name])) for name in before])
    )


def save(path: Path, tree: Any) -> Path:
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(path, tree)
    return path


def restored(path: Path, like: Any) -> Any:
    """Orbax's own restore into the target of the script, in its dtypes."""
    target = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
    with ocp.StandardCheckpointer() as checkpointer:
        return checkpointer.restore(path, target)


def run_of(tx: Any) -> dict[str, Any]:
    params = drawn(0)
    state, params = trained(tx, tx.init(params), params)
    return {"params": params, "opt_state": state}


def how_far(tx: Any, tree: Any) -> float:
    _, params = trained(tx, tree["opt_state"], tree["params"], STEPS)
    return moved(tree["params"], params)


def adamw(**given: float) -> Any:
    return optax.inject_hyperparams(optax.adamw)(optax.constant_schedule(0.01), **given)


INJECTED: dict[str, Callable[[], Any]] = {
    "b2 = 0.999": lambda: adamw(b2=0.999, weight_decay=0.05),
    "b2 = 0.9999": lambda: adamw(b2=0.9999),
    "b2 = 0.95": lambda: adamw(b2=0.95),
    "b1 = 0.999": lambda: adamw(b1=0.999, b2=0.9),
    "adan": lambda: optax.inject_hyperparams(optax.adan)(0.01, b3=0.999),
    "muon": lambda: optax.inject_hyperparams(optax.contrib.muon)(0.01, beta=0.998),
    "rmsprop": lambda: optax.inject_hyperparams(optax.rmsprop)(0.01, decay=0.999),
    "amsgrad": lambda: optax.inject_hyperparams(optax.amsgrad)(0.01),
    "madgrad": lambda: optax.inject_hyperparams(installed(optax.contrib, "madgrad"))(
        0.01, momentum=0.999
    ),
    "in MultiSteps": lambda: optax.MultiSteps(adamw(b2=0.999), 2),
    "in a chain": lambda: optax.chain(optax.clip_by_global_norm(1.0), adamw(b2=0.999)),
    "schedule-free": lambda: optax.contrib.schedule_free_sgd(0.01, b1=0.9),
}
DTYPES = ["bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"]


def printed(keys: Any) -> str:
    return "/".join(str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", "")))) for k in keys)


def settings_of(tree: Any) -> dict[str, np.ndarray]:
    """Every float that the optimizer keeps as a setting, by its printed path, but for what a schedule gives."""
    every = {printed(keys): value for keys, value in jax.tree_util.tree_flatten_with_path(tree)[0]}
    settings = {
        path: np.asarray(value)
        for path, value in every.items()
        if "/hyperparams/" in path or path == "opt_state/b1"
        if jnp.issubdtype(value.dtype, jnp.floating)
    }
    schedules = [path.replace("/hyperparams_states/", "/hyperparams/") for path in every]
    return {
        path: value
        for path, value in settings.items()
        if not any(each.startswith(f"{path}/") for each in schedules)
    }


def ends(value: np.ndarray, dtype: str) -> bool:
    """True if NumPy's rounding makes 0 of a number, or 1 of what is less."""
    new = float(value.astype(ml_dtypes.finfo(dtype).dtype))
    return (new == 0 != float(value)) or (new == 1 and 0 < float(value) < 1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", INJECTED)
def test_a_cast_of_everything_refuses_exactly_the_settings_that_rounding_ends(
    name: str, dtype: str, tmp_path: Path
) -> None:
    tx = INJECTED[name]()
    tree = run_of(tx)
    source = save(tmp_path / "a", tree)
    # moments go by themselves here: what they lose is another rule
    edit = {"op": "cast", "to": dtype, "at": [*settings_of(tree)], "underflow": "keep"}
    lost = sorted(path for path, value in settings_of(tree).items() if ends(value, dtype))

    out = tmp_path / "b"
    if lost:
        with pytest.raises(PlanError) as caught:
            surgery.apply(str(source), str(out), plan_from_document({"edits": [edit]}))
        assert sorted(problem.path or "" for problem in caught.value.problems) == lost
        assert all("except" in problem.fix for problem in caught.value.problems)
        assert not out.exists()
        edit["except"] = lost
    surgery.apply(str(source), str(out), plan_from_document({"edits": [edit]}))
    there = how_far(tx, restored(out, tree))
    assert np.isfinite(there)
    assert there > 0.2 * how_far(tx, tree)


@pytest.mark.parametrize("name", ["b2 = 0.999", "b1 = 0.999", "adan", "amsgrad", "madgrad"])
def test_what_is_refused_ends_the_training_of_optax(name: str) -> None:
    """Stored in bfloat16 and restored in float32, these settings leave params as they are, or make them NaN."""
    tx = INJECTED[name]()
    tree = run_of(tx)
    state = tree["opt_state"]
    rounded = {
        key: jnp.asarray(value, jnp.bfloat16).astype(jnp.float32)
        for key, value in state.hyperparams.items()
    }
    dead = {**tree, "opt_state": state._replace(hyperparams={**state.hyperparams, **rounded})}
    assert not how_far(tx, dead) > 0.2 * how_far(tx, tree)  # what is left is weight decay


FUNCTION = "def one(array, path):\n    return array * 0 + array.dtype.type(0.99999999)\n"
B2 = f"{NODE}/b2"
TO_ONE: dict[str, dict[str, Any]] = {
    "set": {"op": "set", "at": B2, "to": 0.99999999},
    "replace": {"op": "replace", "at": B2, "with": 0.99999999},
    "rescale": {"op": "rescale", "at": B2, "by": 1.001001},
    "add-scaled": {"op": "add-scaled", "at": B2, "with": 0.001},
    "clip": {"op": "clip", "at": B2, "min": 1},
    "reinit": {"op": "reinit", "at": B2, "init": "constant", "value": 0.99999999},
    "map": {"op": "map", "at": B2, "with": "one.py:one"},
    "normalize": {"op": "normalize", "at": B2, "to": 1.0},
    "average": {"op": "average", "at": B2, "with": ["high"], "weights": [0.5, 0.5]},
    "interpolate": {"op": "interpolate", "at": B2, "with": "high", "t": 0.5},
    "replace, cast": {"op": "replace", "at": B2, "with": "wide", "cast": True},
    "cast there and back": {"op": "cast", "at": B2, "to": "bfloat16"},
}
"""Edits after which a float32 of 0.999 is 1, or above, by the value that they write."""


@pytest.mark.parametrize("name", TO_ONE)
def test_every_edit_that_writes_a_one_is_refused_before_a_byte_is_written(
    name: str, tmp_path: Path
) -> None:
    tree = run_of(adamw(b2=0.999))
    source = save(tmp_path / "a", tree)
    state = tree["opt_state"]

    def other(path: str, value: Any) -> str:
        hyperparams = {**state.hyperparams, "b2": value}
        return str(save(tmp_path / path, {"opt_state": state._replace(hyperparams=hyperparams)}))

    sources = {
        "high": other("high", np.asarray(1.0010, np.float32)),
        "wide": other("wide", np.asarray(0.99999999, np.float64)),
    }
    edits = [dict(TO_ONE[name])]
    if name == "map":
        (tmp_path / "one.py").write_text(FUNCTION)
        edits[0]["with"] = f"{tmp_path / 'one.py'}:one"
    if name == "cast there and back":
        edits.append({"op": "cast", "at": B2, "to": "float32"})
    plan = plan_from_document({"sources": sources, "edits": edits})

    with pytest.raises(PlanError, match=r"hyperparams/b2' cannot be 1") as caught:
        surgery.plan(str(source), plan)
    (problem,) = caught.value.problems
    assert problem.path == B2
    with pytest.raises(SurgeryError):
        surgery.apply(str(source), str(tmp_path / "b"), plan)
    assert not (tmp_path / "b").exists()


def test_settings_that_rounding_moves_are_said_with_both_numbers(tmp_path: Path) -> None:
    tree = run_of(adamw(b1=0.9, b2=0.95, weight_decay=0.05))
    source = save(tmp_path / "a", tree)
    plan = plan_from_document({"edits": [{"op": "cast", "to": "bfloat16"}]})

    (note,) = [str(one) for one in surgery.plan(str(source), plan).notes if "settings" in one]
    for name in ("b1", "b2", "weight_decay", "eps"):
        old = float(tree["opt_state"].hyperparams[name])
        new = float(np.asarray(old, ml_dtypes.bfloat16))
        assert f"'{NODE}/{name}' from {old:.4g} to {new:.4g}" in note
    assert "learning_rate" not in note  # a schedule gives it anew

    exact = plan_from_document(
        {
            "edits": [
                {"op": "cast", "to": "float64", "at": "opt_state/**", "where_dtype": "floating"}
            ]
        }
    )
    assert not [one for one in surgery.plan(str(source), exact).notes if "settings" in one]


def test_a_cast_back_says_that_the_value_is_lost_and_the_plan_that_brings_it_trains(
    tmp_path: Path,
) -> None:
    tx = adamw(b2=0.999)
    tree = run_of(tx)
    state = tree["opt_state"]
    low = {name: jnp.asarray(value, jnp.bfloat16) for name, value in state.hyperparams.items()}
    dead = save(tmp_path / "dead", {**tree, "opt_state": state._replace(hyperparams=low)})
    back = {"op": "cast", "at": NODE, "to": "float32"}

    with pytest.raises(PlanError, match="cannot be 1") as caught:
        surgery.plan(str(dead), plan_from_document({"edits": [back]}))
    (problem,) = caught.value.problems
    assert "is that already" in problem.why
    assert "`set` it in the same plan" in problem.fix

    plan = plan_from_document({"edits": [back, {"op": "set", "at": B2, "to": 0.999}]})
    surgery.apply(str(dead), str(tmp_path / "b"), plan)
    assert how_far(tx, restored(tmp_path / "b", tree)) > 0.5 * how_far(tx, tree)


@pytest.mark.parametrize("b2", [1.0, 0.999])
def test_a_share_that_optax_does_not_divide_by_may_be_one(b2: float, tmp_path: Path) -> None:
    """SM3's `b2` is 1 by default, and no bias is corrected for; what is less must not become 1 all the same."""
    tx = optax.inject_hyperparams(optax.scale_by_sm3)(b2=b2)
    params = drawn(0)
    _, state = tx.update(drawn(1), tx.init(params), params)
    tree = {"params": params, "opt_state": state}
    source = save(tmp_path / "a", tree)
    plan = plan_from_document({"edits": [{"op": "cast", "to": "bfloat16", "at": NODE}]})
    if b2 < 1:
        with pytest.raises(PlanError, match="cannot be 1"):
            surgery.plan(str(source), plan)
        return
    surgery.apply(str(source), str(tmp_path / "b"), plan)
    updates, _ = tx.update(drawn(2), restored(tmp_path / "b", tree)["opt_state"], params)
    assert all(np.isfinite(each).all() and np.any(each) for each in updates.values())


def test_a_population_of_settings_is_looked_at_member_by_member(tmp_path: Path) -> None:
    """One state for several members, stacked by `jax.vmap`: one of them would stop."""
    tree = {
        "params": {"w": np.ones((3, 4), np.float32)},
        "opt_state": {
            "count": np.zeros(3, np.int32),
            "hyperparams": {"b2": np.asarray([0.9, 0.999, 0.95], np.float32)},
            "hyperparams_states": {},
            "inner_state": [{
                "count": np.zeros(3, np.int32),
                "mu": {"w": np.ones((3, 4), np.float32)}, "nu": {"w": np.ones((3, 4), np.float32)},
            }],
        },
    }  # fmt: skip
    source = save(tmp_path / "a", tree)
    plan = plan_from_document({"edits": [{"op": "cast", "to": "bfloat16"}]})
    with pytest.raises(PlanError, match="cannot be 1") as caught:
        surgery.plan(str(source), plan)
    assert [problem.path for problem in caught.value.problems] == [B2]


def test_settings_of_an_nnx_optimizer_are_known_under_its_variables(tmp_path: Path) -> None:
    """Flax NNX may put each number under `value`."""
    model = nnx.Linear(3, 4, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(
        model, optax.inject_hyperparams(optax.adamw)(1e-2, b2=0.999), wrt=nnx.Param
    )
    state = nnx.to_pure_dict(nnx.state(optimizer))

    def under_value(tree: Any) -> Any:
        if isinstance(tree, dict):
            return {key: under_value(value) for key, value in tree.items()}
        return {"value": tree}

    params = nnx.to_pure_dict(nnx.state(model, nnx.Param))
    for number, wrapped in enumerate((lambda tree: tree, under_value)):
        tree = {"model": wrapped(params), "opt": wrapped(state)}
        source = save(tmp_path / str(number), tree)
        plan = plan_from_document({"edits": [{"op": "cast", "to": "bfloat16"}]})
        with pytest.raises(PlanError, match=r"hyperparams/b2(/value)?' cannot be 1"):
            surgery.plan(str(source), plan)


def dead_b2() -> dict[str, Any]:
    """What the script returns, for `--like-init`."""
    return run_of(adamw(b2=0.999))


def test_who_looks_at_a_setting_that_ended_is_told(tmp_path: Path) -> None:
    tree = dead_b2()
    state = tree["opt_state"]
    low = {name: jnp.asarray(value, jnp.bfloat16) for name, value in state.hyperparams.items()}
    dead = str(save(tmp_path / "dead", {**tree, "opt_state": state._replace(hyperparams=low)}))
    whole = str(save(tmp_path / "whole", tree))

    for look in (lambda at: surgery.inspect(at, optimizer=True), surgery.verify):
        (note,) = [str(one) for one in look(dead).notes if B2 in one]
        assert "is 1, and optax divides by 1 minus its power" in note
        assert "`cast` it to float32, and `set` it" in note
        assert not [one for one in look(whole).notes if B2 in one]
    found = surgery.doctor(str(tmp_path), read_data=True)
    (note,) = [str(one) for one in found.notes if B2 in one]
    assert note.startswith("dead: ")
    held = surgery.verify(dead, like_init=f"{Path(__file__)}:dead_b2")
    (finding,) = held.findings
    assert finding.what == "dtype"
    assert finding.edits == []
    assert "cannot be 1" in finding.fix


def test_a_state_that_comes_is_looked_at_as_one_that_is_there(tmp_path: Path) -> None:
    """`insert-item` brings settings that the source did not have, a cast behind it; `replace` those of a donor."""
    tree = run_of(adamw(b2=0.999))
    donor = str(save(tmp_path / "donor", tree))
    bare = str(save(tmp_path / "bare", {"params": tree["params"]}))
    came = {"op": "insert-item", "at": "opt_state", "with": donor, "from": "opt_state"}
    cast = {"op": "cast", "to": "bfloat16", "at": "opt_state", "where_dtype": "floating"}
    surgery.plan(bare, plan_from_document({"edits": [came]}))
    with pytest.raises(PlanError, match=r"hyperparams/b2' cannot be 1"):
        surgery.plan(bare, plan_from_document({"edits": [came, cast]}))
    low = run_of(adamw(b2=0.95))
    hyperparams = {n: jnp.asarray(v, jnp.bfloat16) for n, v in low["opt_state"].hyperparams.items()}
    narrow = str(
        save(
            tmp_path / "narrow",
            {**low, "opt_state": low["opt_state"]._replace(hyperparams=hyperparams)},
        )
    )
    taken = {"op": "replace", "at": "opt_state", "with": donor, "cast": True}
    with pytest.raises(PlanError, match=r"hyperparams/b2' cannot be 1"):
        surgery.plan(narrow, plan_from_document({"edits": [taken]}))
