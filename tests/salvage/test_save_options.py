"""Whatever options Orbax saved with, what is not damaged is whole, and comes back as it was."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from orbax.checkpoint import v1

from surgery_cli import surgery
from tests.salvage.test_corpus import restored

SIZES = (None, 64, 4000)
LAYOUTS = list(itertools.product((True, False), (True, False)))
"""With a database or a folder for each leaf, as zarr 3 or 2."""


def _tree(is_sharded):
    mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(4, 2), ("x", "y"))
    over = jax.sharding.PartitionSpec("x", "y") if is_sharded else jax.sharding.PartitionSpec()
    kernel = jnp.arange(24.0 * 40).reshape(24, 40)
    return {
        "kernel": jax.device_put(kernel, jax.sharding.NamedSharding(mesh, over)),
        "prime": jnp.arange(7.0 * 13).reshape(7, 13),
        "half": jnp.arange(600, dtype=jnp.bfloat16),
        "count": jnp.int32(3),
        "one": jnp.ones((1, 1, 5)),
        "host": np.arange(1500.0).reshape(30, 50),
        "step": 7,
        "key": jax.random.key(3),
    }


def _values(tree):
    plain = {**tree, "key": jax.random.key_data(tree["key"])}
    return {name: np.asarray(value) for name, value in plain.items()}


def _is_whole(place, tree, tmp_path):
    """Doctor, verify and rescue find nothing, and Orbax restores what was rescued, bit by bit."""
    (found,) = surgery.doctor(str(place), settled_seconds=0).places
    assert found.state == "whole", found.why
    assert surgery.verify(str(place)).findings == []
    report = surgery.rescue(str(place), str(tmp_path / "rescued"))
    assert {row.path: row.why for row in report.leaves if row.state != "whole"} == {}
    assert surgery.verify(str(tmp_path / "rescued")).findings == []
    back = restored(tmp_path / "rescued")
    for name, value in _values(tree).items():
        assert back[name].dtype == value.dtype or name == "step"
        assert back[name].tobytes() == value.astype(back[name].dtype).tobytes(), name


@pytest.mark.sampled(4)
@pytest.mark.covers(2)
@pytest.mark.parametrize("is_sharded", [False, True], ids=["one device", "sharded"])
@pytest.mark.parametrize("chunk_bytes", SIZES)
@pytest.mark.parametrize(("use_ocdbt", "use_zarr3"), LAYOUTS)
def test_what_is_not_damaged_is_whole(use_ocdbt, use_zarr3, chunk_bytes, is_sharded, tmp_path):
    tree = _tree(is_sharded)
    saving = jax.tree.map(lambda _: ocp.SaveArgs(chunk_byte_size=chunk_bytes), tree)
    file_bytes = 2000 if use_ocdbt and chunk_bytes == 64 else None
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=use_ocdbt, use_zarr3=use_zarr3)
    args = ocp.args.PyTreeSave(tree, save_args=saving, ocdbt_target_data_file_size=file_bytes)
    ocp.Checkpointer(handler).save(tmp_path / "saved", args)

    _is_whole(tmp_path / "saved", tree, tmp_path)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("use_compression", [True, False])
@pytest.mark.parametrize(("use_ocdbt", "use_zarr3"), LAYOUTS)
def test_axes_to_cut_and_compression_change_nothing(
    use_ocdbt, use_zarr3, use_compression, tmp_path
):
    tree = _tree(is_sharded=True)
    saving = jax.tree.map(lambda _: ocp.SaveArgs(chunk_byte_size=500), tree)
    saving["kernel"] = ocp.SaveArgs(chunk_byte_size=500, shard_axes=(1,))
    handler = ocp.PyTreeCheckpointHandler(
        use_ocdbt=use_ocdbt, use_zarr3=use_zarr3, use_compression=use_compression
    )
    args = ocp.args.PyTreeSave(tree, save_args=saving)
    ocp.Checkpointer(handler).save(tmp_path / "saved", args)

    _is_whole(tmp_path / "saved", tree, tmp_path)


@pytest.mark.parametrize(("use_ocdbt", "use_zarr3"), LAYOUTS)
def test_a_save_of_v1_is_whole(use_ocdbt, use_zarr3, tmp_path):
    tree = {"kernel": jnp.arange(960.0).reshape(24, 40), "host": np.arange(1500.0)}
    storage = v1.options.ArrayOptions.Saving.StorageOptions(chunk_byte_size=400)
    arrays = v1.options.ArrayOptions(
        saving=v1.options.ArrayOptions.Saving(
            use_ocdbt=use_ocdbt, use_zarr3=use_zarr3, storage_options=storage
        )
    )
    with v1.Context(array_options=arrays):
        v1.save(tmp_path / "saved", tree)

    assert surgery.verify(str(tmp_path / "saved")).findings == []
    assert surgery.rescue(str(tmp_path / "saved"), str(tmp_path / "new")).is_whole
    with v1.Context(array_options=arrays):
        back = v1.load(tmp_path / "new", abstract_state=tree)
    assert jax.tree.all(jax.tree.map(np.array_equal, back, tree))


@pytest.fixture
def chunked(tmp_path):
    """A save in folders of leaves, in chunks smaller than what was written at once."""
    tree = {"kernel": jnp.arange(960.0).reshape(24, 40)}
    saving = {"kernel": ocp.SaveArgs(chunk_byte_size=400)}
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=False)
    args = ocp.args.PyTreeSave(tree, save_args=saving)
    ocp.Checkpointer(handler).save(tmp_path / "saved", args)
    return tmp_path / "saved"


def _altered(file, old, new):
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


def _state(place):
    (row,) = surgery.rescue(str(place)).leaves
    return row.state


@pytest.mark.parametrize("file", ["_METADATA", "array_metadatas/process_0"])
def test_one_other_description_of_a_leaf_costs_nothing(chunked, file):
    _altered(chunked / file, '"write_shape": [24, 40]', '"write_shape": [24, 41]')
    assert np.array_equal(restored(chunked)["kernel"], np.arange(960.0).reshape(24, 40))
    assert _state(chunked) == "whole"


def test_a_description_that_all_others_contradict_is_damage(chunked):
    """One row less in the last chunk: everything decodes, and no key lies beyond."""
    _altered(chunked / "kernel" / ".zarray", '"shape":[24,40]', '"shape":[23,40]')
    assert restored(chunked)["kernel"].shape == (23, 40)
    assert _state(chunked) == "lost"


@pytest.mark.parametrize("use_zarr3", [False, True])
def test_bytes_in_the_other_order_are_damage(tmp_path, use_zarr3):
    """What Orbax restores are other numbers: it never writes that."""
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=False, use_zarr3=use_zarr3)
    ocp.Checkpointer(handler).save(
        tmp_path / "saved", ocp.args.PyTreeSave({"kernel": jnp.arange(9.0)})
    )
    document = tmp_path / "saved" / "kernel" / ("zarr.json" if use_zarr3 else ".zarray")
    _altered(document, *('"little"', '"big"') if use_zarr3 else ("<f4", ">f4"))
    assert not np.array_equal(restored(tmp_path / "saved")["kernel"], np.arange(9.0))
    assert _state(tmp_path / "saved") == "lost"
    assert surgery.verify(str(tmp_path / "saved")).findings
