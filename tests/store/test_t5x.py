"""T5X checkpoints are edited as they are, and what comes out is one: TensorStore opens its specs, Flax its msgpack."""

import random
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest
from flax import serialization, traverse_util

from surgery_cli import surgery
from surgery_cli.cli.main import run
from surgery_cli.errors import CheckpointError, PlanError
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.settings.reshard import Reshard
from surgery_cli.store.locate.location import locate
from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.tree.paths import LeafPath
from tests.fixture_truths import FIXTURES
from tests.store.t5x_checkpoints import KERNEL, PARAMS, load_t5x, train_state, write_t5x

WI = "target/decoder/layers_0/mlp/wi/kernel"
MOMENTS = "state/param_states/decoder/layers_0/mlp/wi/kernel"


def apply(source: Path, new: Path, name: str, optimizer: str = "transform", **fields: Any) -> Any:
    plan = plan_of([operation_from_options(name, fields)])
    return surgery.apply(str(source), str(new), plan, options=surgery.Options(optimizer=optimizer))


def flat(tree: Any) -> dict[str, Any]:
    found: dict[str, Any] = traverse_util.flatten_dict(tree, sep="/", keep_empty_nodes=True)
    return found


def assert_same(one: Any, other: Any) -> None:
    left, right = flat(one), flat(other)
    assert sorted(left) == sorted(right)
    for name, values in left.items():
        assert np.asarray(values).dtype == np.asarray(right[name]).dtype, name
        np.testing.assert_array_equal(values, right[name], err_msg=name)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("driver", ["file", "gfile", "gcs"])
def test_every_leaf_reads_as_it_was_written(tmp_path: Path, version: int, driver: str) -> None:
    folder = write_t5x(tmp_path / "run" / "checkpoint_1000", version, driver=driver)
    for place in (folder, folder.parent):
        checkpoint = open_checkpoint(str(place))
        read = {str(path): checkpoint.read(path) for path in checkpoint.tree}
        assert_same(traverse_util.unflatten_dict(read, sep="/"), train_state())
        assert (checkpoint.step, checkpoint.layout) == (1000, "per-leaf zarr2 of T5X")


@pytest.mark.parametrize("version", [2, 3])
def test_an_edit_writes_its_leaf_and_links_all_others(tmp_path: Path, version: int) -> None:
    source = write_t5x(tmp_path / "run" / "checkpoint_1000", version).parent
    (source / "checkpoint_1000" / "train_ds-000-of-001.index").write_text("where the data stood")
    new = tmp_path / "new"
    apply(source, new, "rescale", at=WI, by="2")
    expected = train_state()
    wi = expected["target"]["decoder"]["layers_0"]["mlp"]["wi"]
    expected["target"] = jax.tree.map(
        lambda leaf: leaf * 2 if leaf is wi["kernel"] else leaf, PARAMS
    )
    slots = expected["state"]["param_states"]["decoder"]["layers_0"]["mlp"]["wi"]["kernel"]
    slots |= {name: values / 4 for name, values in slots.items() if name != "m"}
    assert_same(load_t5x(new / "checkpoint_1000"), expected)
    old_file, new_file = (
        folder / "checkpoint_1000" / "target.token_embedder.embedding" / "0.0"
        for folder in (source, new)
    )
    assert old_file.samefile(new_file)
    assert (new / "checkpoint_1000" / "train_ds-000-of-001.index").is_file()
    before, after = (
        serialization.msgpack_restore((folder / "checkpoint_1000" / "checkpoint").read_bytes())
        for folder in (source, new)
    )
    path = ("optimizer", *MOMENTS.split("/"), "v_row")
    assert (
        traverse_util.flatten_dict(before, is_leaf=_is_spec)[path]
        == (traverse_util.flatten_dict(after, is_leaf=_is_spec)[path])
    )


def _is_spec(_: Any, value: Any) -> bool:
    return set(value) >= {"driver", "kvstore", "metadata"}


EDITS: dict[str, dict[str, Any]] = {
    "rename": {"at": "target/decoder/layers_0/mlp", "to": "target/encoder/ffn"},
    "delete": {"at": "target/decoder/logits_dense"},
    "cast": {"at": "target/**", "to": "bfloat16"},
    "transpose": {"at": "target/decoder/logits_dense/kernel", "axes": "1,0"},
    "pad": {"at": "target/token_embedder/embedding", "axis": "0", "after": "2"},
    "copy": {"at": "target/decoder/layers_0", "to": "target/decoder/layers_1"},
    "add": {
        "at": "target/head/kernel",
        "shape": "4,6",
        "init": "ones",
        "dtype": "float32",
    },
    "set": {"at": "state/step", "to": "7"},
    "keep": {"at": "target"},
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", EDITS)
def test_edits_give_what_they_give_for_the_same_tree_by_orbax(tmp_path: Path, name: str) -> None:
    folder = write_t5x(tmp_path / "checkpoint_1000")
    tree = jax.tree.map(jnp.asarray, train_state())
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "orbax", tree)
        apply(folder, tmp_path / "new", name, **EDITS[name])
        apply(tmp_path / "orbax", tmp_path / "new by orbax", name, **EDITS[name])
        expected = checkpointer.restore(tmp_path / "new by orbax")
    assert_same(load_t5x(tmp_path / "new"), expected)


def test_bfloat16_of_version_2_is_read_and_comes_out_as_such(tmp_path: Path) -> None:
    params = jax.tree.map(lambda leaf: leaf.astype(ml_dtypes.bfloat16), PARAMS)
    state = train_state() | {"target": params}
    folder = write_t5x(tmp_path / "checkpoint_1000", 2, state=state)
    checkpoint = open_checkpoint(str(folder))
    path = LeafPath(tuple(WI.split("/")))
    assert checkpoint.tree[path].dtype == "bfloat16"
    np.testing.assert_array_equal(
        checkpoint.read(path, (slice(1, 3), slice(0, 2))).astype(np.float32), KERNEL[1:3, :2]
    )
    apply(folder, tmp_path / "new", "set", at="state/step", to="1")
    state["state"]["step"] = np.int32(1)
    assert_same(load_t5x(tmp_path / "new"), state)


def test_a_t5x_checkpoint_is_a_donor_and_a_likeness_and_becomes_orbax(tmp_path: Path) -> None:
    one = write_t5x(tmp_path / "one")
    halved = train_state(jax.tree.map(lambda leaf: leaf / 2, PARAMS))
    other = write_t5x(tmp_path / "other", state=halved)
    given = {"at": "target", "with": str(other)}
    apply(one, tmp_path / "new", "replace", optimizer="keep", **given)
    assert_same(load_t5x(tmp_path / "new")["target"], halved["target"])
    assert surgery.verify(str(tmp_path / "new"), like=str(one)).agrees
    assert not surgery.verify(str(tmp_path / "new")).findings
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "orbax", {"params": jax.tree.map(np.zeros_like, PARAMS)})
        given = {"at": "params", "with": str(one), "from": "target"}
        apply(tmp_path / "orbax", tmp_path / "filled", "replace", **given)
        assert_same(checkpointer.restore(tmp_path / "filled")["params"], PARAMS)


def test_version_1_is_refused_as_t5x_does(tmp_path: Path, capsys: Any) -> None:
    write_t5x(tmp_path / "run" / "checkpoint_1000", 1)
    with pytest.raises(SystemExit) as left:
        run(["inspect", str(tmp_path / "run")])
    assert left.value.code == 3
    assert "is a T5X checkpoint of version 1" in capsys.readouterr().err


def _changed(folder: Path, change: Any) -> Path:
    file = folder / "checkpoint"
    content = serialization.msgpack_restore(file.read_bytes())
    change(content["optimizer"]["target"]["decoder"]["layers_0"]["mlp"]["wi"])
    file.write_bytes(serialization.msgpack_serialize(content))
    return folder


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda wi: wi["kernel"]["kvstore"].update(path="../secret"), "stands at '../secret'"),
        (lambda wi: wi["kernel"]["kvstore"].update(path="/etc/x"), "stands at '/etc/x'"),
        (lambda wi: wi["kernel"]["kvstore"].update(path="gone"), "is not found|has no data"),
        (lambda wi: wi["kernel"]["kvstore"].update(driver="http"), "in files"),
        (lambda wi: wi["kernel"].update(driver="n5"), "in files"),
        (lambda wi: wi["kernel"].update(dtype="float64"), "by its TensorStore spec"),
        (lambda wi: wi["kernel"]["metadata"].update(shape=[3, 5]), "by its TensorStore spec"),
        (lambda wi: wi["kernel"].update(metadata=7), "lacks or misstates"),
        (lambda wi: wi["kernel"].update(transform={"input_exclusive_max": [1, 4]}), "in files"),
    ],
)
def test_specs_that_t5x_does_not_write_are_refused(tmp_path: Path, change: Any, says: str) -> None:
    folder = _changed(write_t5x(tmp_path / "checkpoint_1000"), change)
    with pytest.raises(CheckpointError, match=says):
        _ = open_checkpoint(str(folder)).tree


def test_flipped_bytes_give_a_checkpoint_error_or_a_tree(tmp_path: Path) -> None:
    folder = write_t5x(tmp_path / "checkpoint_1000")
    file = folder / "checkpoint"
    whole, source = file.read_bytes(), random.Random(0)
    for _ in range(60):
        changed = bytearray(whole)
        for _ in range(source.randrange(1, 4)):
            changed[source.randrange(len(changed))] = source.randrange(256)
        file.write_bytes(changed)
        with suppress(CheckpointError):
            checkpoint = open_checkpoint(str(folder))
            for path in checkpoint.tree:
                checkpoint.read(path)


@pytest.mark.parametrize("layout", [Reshard(mesh={"fsdp": 2}), Reshard(chunk_bytes=64)])
def test_reshard_is_refused_where_shardings_have_no_place(tmp_path: Path, layout: Reshard) -> None:
    for source in (
        write_t5x(tmp_path / str(layout.chunk_bytes)),
        FIXTURES / "orbax-0.2.7" / "sharded4_noocdbt",
    ):
        with pytest.raises(PlanError, match="no place for shardings"):
            surgery.plan(str(source), plan_of([], reshard=layout))


def test_a_chunk_that_is_missing_is_no_zeros(tmp_path: Path) -> None:
    folder = write_t5x(tmp_path / "checkpoint_1000")
    (folder / "target.token_embedder.embedding" / "0.0").unlink()
    with pytest.raises(CheckpointError, match=r"target.token_embedder.embedding.*is incomplete"):
        _ = open_checkpoint(str(folder)).tree


def test_what_t5x_is_still_writing_is_no_step(tmp_path: Path) -> None:
    write_t5x(tmp_path / "checkpoint_10")
    shutil.copytree(tmp_path / "checkpoint_10", tmp_path / "checkpoint_20.tmp-1795167049")
    location = locate(str(tmp_path))
    assert (location.step, location.unfinished) == (10, ["checkpoint_20.tmp-1795167049"])
    with pytest.raises(CheckpointError, match="is an unfinished save"):
        locate(str(tmp_path / "checkpoint_20.tmp-1795167049"))


def test_the_msgpack_file_alone_names_its_folder(tmp_path: Path) -> None:
    folder = write_t5x(tmp_path / "checkpoint_1000")
    with pytest.raises(CheckpointError, match="is one file of a checkpoint"):
        locate(str(folder / "checkpoint"))
    shutil.copy(folder / "checkpoint", tmp_path / "alone.msgpack")
    with pytest.raises(CheckpointError, match="refers to arrays by TensorStore specs"):
        _ = open_checkpoint(str(tmp_path / "alone.msgpack")).tree


def test_a_t5x_checkpoint_whose_arrays_all_stand_inline_is_a_tree(tmp_path: Path) -> None:
    write_t5x(tmp_path / "t5x", is_partitioned=False)
    kernel = open_checkpoint(str(tmp_path / "t5x")).read(LeafPath(tuple(WI.split("/"))))
    np.testing.assert_array_equal(kernel, KERNEL)


def test_specs_in_any_flax_file_are_no_leaves(tmp_path: Path) -> None:
    spec = {"driver": "zarr", "kvstore": {"driver": "gcs", "bucket": "b", "path": "w"}}
    file = tmp_path / "checkpoint_3"
    file.write_bytes(serialization.to_bytes({"params": {"w": spec}}))
    with pytest.raises(CheckpointError, match="refers to arrays by TensorStore specs"):
        _ = open_checkpoint(str(file)).tree


def test_keys_that_are_called_like_those_of_a_spec_may_hold_arrays(tmp_path: Path) -> None:
    tree = {"driver": np.ones(2), "kvstore": {"driver": np.ones(3)}}
    file = tmp_path / "checkpoint_3"
    file.write_bytes(serialization.to_bytes({"params": tree}))
    assert len(open_checkpoint(str(file)).tree) == 2


def test_an_edit_after_which_t5x_would_not_find_its_way_is_refused(tmp_path: Path) -> None:
    folder = write_t5x(tmp_path / "checkpoint_1000")
    with pytest.raises(PlanError, match="'params/decoder/"):
        apply(folder, tmp_path / "new", "rename", at="target", to="params")
