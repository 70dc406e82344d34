"""Named tuples that Orbax stores with their names, and what only Flax's msgpack files hold."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from flax import serialization
from orbax.checkpoint._src.metadata.pytree_metadata_options import PyTreeMetadataOptions

from surgery_cli import surgery
from surgery_cli.planning import operation_from_options, plan_of
from tests.judge.targets import abstract, is_same, leaves_of
from tests.source_trees import everything_of


class Moments(NamedTuple):
    mu: Any
    nu: Any


class Nothing(NamedTuple):
    pass


def _rich_state() -> dict[str, Any]:
    return {
        "params": {"Dense_0": {"kernel": jnp.arange(1.0, 7.0).reshape(2, 3)}, "bias": jnp.ones(3)},
        "pair": (jnp.arange(2.0), [jnp.arange(3.0), None]),
        "moments": Moments({"w": jnp.arange(4.0)}, {"w": jnp.arange(5.0)}),
        "empty": Nothing(),
        "key": jax.random.key(1),
        "text": "words",
        "number": 3,
    }


def _rich_checkpointer() -> ocp.Checkpointer:
    options = PyTreeMetadataOptions(support_rich_types=True)
    return ocp.Checkpointer(ocp.PyTreeCheckpointHandler(pytree_metadata_options=options))


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rich") / "saved"
    with _rich_checkpointer() as checkpointer:
        checkpointer.save(path, args=ocp.args.PyTreeSave(_rich_state()))
    return path


def _rich_plain(path: Path) -> Any:
    with _rich_checkpointer() as checkpointer:
        return checkpointer.restore(path, args=ocp.args.PyTreeRestore())


def _shape_of(tree: Any) -> Any:
    """Containers with their names and fields, leaves with their values."""
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return (
            type(tree).__name__,
            {f: _shape_of(v) for f, v in zip(tree._fields, tree, strict=True)},
        )
    if isinstance(tree, dict):
        return {key: _shape_of(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(_shape_of(value) for value in tree)
    if isinstance(tree, jax.Array) and jnp.issubdtype(tree.dtype, jax.dtypes.prng_key):
        return str(tree.dtype), np.asarray(jax.random.key_data(tree)).tolist()
    return np.asarray(tree).tolist() if hasattr(tree, "dtype") else tree


RICH_EDITS = {
    "nothing": ([], lambda state: state),
    "rescale": (
        [("rescale", {"at": "params/Dense_0", "by": "2"})],
        lambda state: {
            **state,
            "params": {
                "Dense_0": {"kernel": state["params"]["Dense_0"]["kernel"] * 2},
                "bias": state["params"]["bias"],
            },
        },
    ),
    "rename": (
        [("rename", {"at": "params/Dense_0", "to": "params/head"})],
        lambda state: {
            **state,
            "params": {"head": state["params"]["Dense_0"], "bias": state["params"]["bias"]},
        },
    ),
    "rename-named-tuple": (
        [("rename", {"at": "moments", "to": "slots"})],
        lambda state: {
            **{key: value for key, value in state.items() if key != "moments"},
            "slots": state["moments"],
        },
    ),
    "copy": (
        [("copy", {"at": "pair", "to": "again"})],
        lambda state: {**state, "again": state["pair"]},
    ),
    "delete": (
        [("delete", {"at": "params/bias"})],
        lambda state: {**state, "params": {"Dense_0": state["params"]["Dense_0"]}},
    ),
}


@pytest.mark.parametrize("edit", RICH_EDITS)
def test_rich_types_restore_without_target_as_where_the_edited_state_was_saved(
    rich: Path, edit: str, tmp_path: Path
) -> None:
    steps, change = RICH_EDITS[edit]
    before = everything_of(rich)
    plan = plan_of(
        [operation_from_options(name, fields) for name, fields in steps], params="params"
    )
    surgery.apply(str(rich), str(tmp_path / "new"), plan, options=surgery.Options(optimizer="keep"))
    with _rich_checkpointer() as checkpointer:
        checkpointer.save(tmp_path / "reference", args=ocp.args.PyTreeSave(change(_rich_state())))
    assert _shape_of(_rich_plain(tmp_path / "new")) == _shape_of(
        _rich_plain(tmp_path / "reference")
    )
    assert everything_of(rich) == before


def test_rich_types_restore_with_the_original_target(rich: Path, tmp_path: Path) -> None:
    plan = plan_of([operation_from_options("rescale", {"at": "params/bias", "by": "3"})])
    surgery.apply(str(rich), str(tmp_path / "new"), plan)
    state = _rich_state()
    state["params"]["bias"] = state["params"]["bias"] * 3
    arguments = ocp.checkpoint_utils.construct_restore_args(abstract(state))
    with _rich_checkpointer() as checkpointer:
        args = ocp.args.PyTreeRestore(item=abstract(state), restore_args=arguments)
        restored = checkpointer.restore(tmp_path / "new", args=args)
    assert _shape_of(restored) == _shape_of(state)


def _flax_state() -> dict[str, Any]:
    return {
        "params": {"w": np.arange(1.0, 7.0, dtype=np.float32).reshape(2, 3), "v": np.ones(2)},
        "bfloat16": jnp.arange(4, dtype=jnp.bfloat16),
        "zero_size": np.zeros((0, 3), np.float32),
        "complex": 1 + 2j,
        "float": 0.1,
        "int": -7,
        "flag": True,
        "text": "grüße",
        "bytes": b"\x00\xff",
        "none": None,
        "empty": {},
        "list": [np.arange(3), {"deep": np.int64(4)}],
        "scalar": np.float32(2.5),
        "key with/slash": np.arange(2),
    }


def test_flax_files_keep_every_kind_beside_an_edited_leaf(tmp_path: Path) -> None:
    source = tmp_path / "checkpoint_5"
    source.write_bytes(serialization.to_bytes(_flax_state()))
    before = everything_of(source)
    plan = plan_of([operation_from_options("rescale", {"at": "params/w", "by": "2"})])
    surgery.apply(str(source), str(tmp_path / "checkpoint_6"), plan)
    expected = _flax_state()
    expected["params"]["w"] = expected["params"]["w"] * 2
    written = (tmp_path / "checkpoint_6").read_bytes()
    assert written == serialization.to_bytes(expected)
    restored = serialization.from_bytes(_flax_state(), written)
    wanted = leaves_of(expected)
    assert [p for p, leaf in leaves_of(restored).items() if not is_same(leaf, wanted[p])] == []
    assert everything_of(source) == before


def test_a_renamed_subtree_of_a_flax_file_is_what_flax_would_have_written(tmp_path: Path) -> None:
    source = tmp_path / "checkpoint_5"
    source.write_bytes(serialization.to_bytes(_flax_state()))
    plan = plan_of([operation_from_options("rename", {"at": "params", "to": "weights"})])
    surgery.apply(str(source), str(tmp_path / "checkpoint_6"), plan)
    found = serialization.msgpack_restore((tmp_path / "checkpoint_6").read_bytes())
    expected = serialization.to_state_dict(_flax_state())
    expected["weights"] = expected.pop("params")
    assert _shape_of(found) == _shape_of(expected)
