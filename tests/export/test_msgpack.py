"""Checkpoints written as Flax's msgpack: Flax restores them into the state that was saved."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import serialization
from flax.training.train_state import TrainState

from surgery_cli import surgery
from surgery_cli.errors import PlanError
from surgery_cli.planning import plan_of
from surgery_cli.settings.export import Export
from surgery_cli.store.export import msgpack
from surgery_cli.store.files import msgpack_writing

PLAN = plan_of([], output=Export(format="msgpack"))


def save(path: Path, tree: Any) -> Path:
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(path, tree)
    return path


def train_state(optimizer: optax.GradientTransformation) -> TrainState:
    params = {
        "a": {"k": jnp.ones((3, 4)), "b": jnp.full(4, 0.5, jnp.bfloat16)},
        "l": [jnp.arange(3.0)],
    }
    return TrainState.create(apply_fn=None, params=params, tx=optimizer)


def same(a: Any, b: Any) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for one, other in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert np.asarray(one).dtype == np.asarray(other).dtype
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


ONLY_KERNELS = {"a": {"k": True, "b": False}, "l": [False]}


@pytest.mark.parametrize(
    "optimizer",
    [
        optax.adam(1e-3),
        optax.chain(optax.clip(1.0), optax.masked(optax.adam(1e-3), ONLY_KERNELS)),
        optax.sgd(0.1),
        optax.sgd(0.1, momentum=0.9),
        optax.inject_hyperparams(optax.adamw)(learning_rate=1e-3),
        optax.identity(),
    ],
    ids=["adam", "masked", "sgd", "momentum", "injected", "identity"],
)
def test_flax_restores_the_state_that_orbax_has_saved(
    tmp_path: Path, optimizer: optax.GradientTransformation
) -> None:
    """Orbax keeps no states without fields: they are told from None by where they stand."""
    state = train_state(optimizer)
    surgery.apply(str(save(tmp_path / "source", state)), str(tmp_path / "out"), PLAN)
    same(serialization.from_bytes(state, (tmp_path / "out").read_bytes()), state)
    assert surgery.verify(str(tmp_path / "out")).agrees


def test_a_param_that_is_none_is_none_in_the_optimizer_too(tmp_path: Path) -> None:
    params = {"w": jnp.ones(3), "off": None, "layers": [jnp.ones(2), None]}
    state = {"params": params, "opt_state": optax.adam(1e-3).init(params)}
    surgery.apply(str(save(tmp_path / "source", state)), str(tmp_path / "out"), PLAN)
    found = serialization.msgpack_restore((tmp_path / "out").read_bytes())
    assert found["params"]["off"] is found["opt_state"]["0"]["mu"]["off"] is None
    assert found["params"]["layers"]["1"] is None
    assert found["opt_state"]["1"] == {}


def test_every_kind_of_leaf_is_what_flax_would_have_written(tmp_path: Path) -> None:
    tree = {
        "bf16": np.arange(3).astype(ml_dtypes.bfloat16),
        "f8": np.arange(3).astype(ml_dtypes.float8_e4m3fn),
        "i4": np.arange(3).astype(ml_dtypes.int4),
        "c": np.array([1 + 2j]),
        "flag": np.array([True]),
        "scalar": np.float32(3),
        "int": 7,
        "large": 1 << 40,
        "float": 0.5,
        "text": "a run",
        "none": None,
        "empty": {},
        "list": [np.ones(2), np.zeros(1)],
    }
    surgery.apply(str(save(tmp_path / "source", tree)), str(tmp_path / "out"), PLAN)
    found = serialization.msgpack_restore((tmp_path / "out").read_bytes())
    expected = serialization.to_state_dict(tree)
    assert found.keys() == expected.keys()
    assert (found["int"], found["large"], found["float"]) == (7, 1 << 40, 0.5)
    assert (found["text"], found["none"], found["empty"]) == ("a run", None, {})
    assert type(found["int"]) is int
    for name in ("bf16", "f8", "i4", "c", "flag"):
        assert found[name].dtype == expected[name].dtype
        assert found[name].tobytes() == expected[name].tobytes()
    np.testing.assert_array_equal(found["list"]["0"], np.ones(2))


def test_large_arrays_are_in_parts_as_flax_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = {"w": np.arange(600, dtype=np.float32).reshape(20, 30), "b": np.ones(3)}
    source = save(tmp_path / "source", tree)
    for module in (msgpack, msgpack_writing):
        monkeypatch.setattr(module, "LARGEST_ARRAY_BYTES", 1000)
    monkeypatch.setattr(serialization, "MAX_CHUNK_SIZE", 1000)
    surgery.apply(str(source), str(tmp_path / "out"), PLAN)
    raw = (tmp_path / "out").read_bytes()
    same(serialization.msgpack_restore(raw), tree)
    assert len(raw) == len(serialization.msgpack_serialize(tree))


def test_what_flax_wrote_comes_out_as_it_was(tmp_path: Path) -> None:
    state = train_state(optax.adam(1e-3))
    (tmp_path / "source").write_bytes(serialization.to_bytes(state))
    surgery.apply(str(tmp_path / "source"), str(tmp_path / "out"), PLAN)
    assert (tmp_path / "out").read_bytes() == (tmp_path / "source").read_bytes()


def test_random_keys_are_refused_by_name(tmp_path: Path) -> None:
    source = save(tmp_path / "source", {"rng": jax.random.key(0), "w": np.ones(2)})
    with pytest.raises(PlanError, match=r"msgpack has no place for typed random keys: 1 leaf"):
        surgery.plan(str(source), PLAN)


def test_a_shard_of_one_file_is_refused(tmp_path: Path) -> None:
    source = save(tmp_path / "source", {"w": np.ones(2)})
    plan = plan_of([], output=Export(format="msgpack", shard="1GB"))
    with pytest.raises(PlanError, match="`shard` would cut it"):
        surgery.plan(str(source), plan, destination=str(tmp_path / "out"))
