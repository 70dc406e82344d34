"""Leaves of many chunks, shards and blocks, written in many transactions, keep their grid and get the right values."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
import tensorstore as ts

from surgery_cli import surgery
from surgery_cli.engine import grid
from surgery_cli.planning import operation_from_options, plan_of
from tests.source_trees import everything_of

VALUES = np.random.default_rng(11).uniform(0.5, 2.0, (10, 7)).astype(np.float32)
LONG = np.random.default_rng(12).uniform(0.5, 2.0, (61, 5)).astype(np.float32)
TREE = {"w": VALUES, "long": LONG, "other": np.arange(4.0, dtype=np.float32)}
CHUNKS = (3, 5)


def _array_spec(path: Path, name: str, *, ocdbt: bool, zarr3: bool) -> dict[str, Any]:
    base = {"driver": "file", "path": f"{path}/"}
    kvstore: dict[str, Any] = {"driver": "file", "path": f"{path / name}/"}
    if ocdbt:
        kvstore = {"driver": "ocdbt", "base": base, "path": f"{name}/"}
    return {"driver": "zarr3" if zarr3 else "zarr", "kvstore": kvstore}


def _zarr2(shape: tuple[int, ...], chunks: tuple[int, ...]) -> dict[str, Any]:
    compressor = {"id": "zstd", "level": 1}
    return {"shape": shape, "chunks": chunks, "dtype": "<f4", "compressor": compressor}


def _zarr3(shape: tuple[int, ...], chunks: tuple[int, ...]) -> dict[str, Any]:
    """Shards of twice the chunks in each axis."""
    inner = {"chunk_shape": chunks, "codecs": [{"name": "bytes"}, {"name": "zstd"}]}
    shards = {"chunk_shape": [2 * n for n in chunks]}
    return {
        "shape": shape,
        "data_type": "float32",
        "chunk_grid": {"name": "regular", "configuration": shards},
        "codecs": [{"name": "sharding_indexed", "configuration": inner}],
    }


LAYOUTS = [(ocdbt, zarr3) for ocdbt in (True, False) for zarr3 in (False, True)]


@pytest.fixture(
    params=LAYOUTS, ids=lambda x: f"{'ocdbt' if x[0] else 'leaves'}-zarr{2 + x[1]}", scope="module"
)
def chunked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A checkpoint whose arrays stand in small chunks that do not divide them, with its layout."""
    ocdbt, zarr3 = request.param
    path = tmp_path_factory.mktemp("chunked") / "source"
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=ocdbt, use_zarr3=zarr3)
    with ocp.Checkpointer(handler) as checkpointer:
        checkpointer.save(path, args=ocp.args.PyTreeSave(jax.tree.map(jax.numpy.asarray, TREE)))
    for name, values, chunks in (("w", VALUES, CHUNKS), ("long", LONG, (4, 2))):
        spec = _array_spec(path, name, ocdbt=ocdbt, zarr3=zarr3)
        spec["metadata"] = (_zarr3 if zarr3 else _zarr2)(values.shape, chunks)
        array = ts.open(
            {**spec, "store_data_equal_to_fill_value": True}, create=True, delete_existing=True
        ).result()
        array.write(values).result()
    return path, request.param


def _document(path: Path, name: str, layout: tuple[bool, bool]) -> dict[str, Any]:
    """What is stored of an array beside its chunks."""
    spec = _array_spec(path, name, ocdbt=layout[0], zarr3=layout[1])
    store = ts.KvStore.open(spec["kvstore"]).result()
    return json.loads(store.read("zarr.json" if layout[1] else ".zarray").result().value)


def _restored(path: Path) -> Any:
    with ocp.PyTreeCheckpointer() as checkpointer:
        return jax.tree.map(np.asarray, checkpointer.restore(path))


BUDGETS = {
    "at once": (None, 1 << 30),
    "blocks": (150, 1 << 30),
    "blocks and transactions": (150, 1000),
    "one block a transaction": (1, 1),
}
"""Bytes of a block (None: as it is), and the memory that a run may use."""


@pytest.fixture(params=BUDGETS)
def memory_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    block_bytes, memory = BUDGETS[request.param]
    if block_bytes is not None:
        monkeypatch.setattr(grid.block_shape, "__defaults__", (block_bytes,))
    return memory


def _apply(source: Path, destination: Path, memory_bytes: int, *steps: Any, **options: Any) -> None:
    before = everything_of(source)
    plan = plan_of([operation_from_options(name, fields) for name, fields in steps])
    settings = surgery.Options(memory_bytes=memory_bytes, optimizer="keep", **options)
    surgery.apply(str(source), str(destination), plan, options=settings)
    assert everything_of(source) == before


EDITS: dict[str, tuple[list[Any], Any]] = {
    "rescale": ([("rescale", {"by": "0.5"})], lambda x: x * np.float32(0.5)),
    "normalize": ([("normalize", {})], lambda x: x / np.linalg.norm(x)),
    "columns": (
        [("normalize", {"axis": "0"})],
        lambda x: x / np.linalg.norm(x, axis=0, keepdims=True),
    ),
    "rows": (
        [("normalize", {"axis": "1", "norm": "max"})],
        lambda x: x / np.abs(x).max(axis=1, keepdims=True),
    ),
    "twice": (
        [("rescale", {"by": "4"}), ("normalize", {"norm": "l1", "to": "3"})],
        lambda x: 3 * x / np.abs(x).sum(),
    ),
    "constant": ([("replace", {"with": "2.5"})], lambda x: np.full_like(x, 2.5)),
    "cast": ([("cast", {"to": "float16"})], lambda x: x.astype(np.float16)),
}


@pytest.mark.sampled(8)
@pytest.mark.covers(2)
@pytest.mark.parametrize("edit", EDITS)
def test_a_leaf_of_many_chunks_gets_the_right_values_in_its_own_grid(
    chunked: Any, edit: str, memory_bytes: int, tmp_path: Path
) -> None:
    source, layout = chunked
    steps, expected = EDITS[edit]
    at = [(name, {"at": leaf, **fields}) for leaf in ("w", "long") for name, fields in steps]
    _apply(source, tmp_path / "new", memory_bytes, *at)
    restored = _restored(tmp_path / "new")
    for name in ("w", "long"):
        wanted = expected(TREE[name])
        assert restored[name].dtype == wanted.dtype
        np.testing.assert_allclose(restored[name], wanted, rtol=2e-6)
        old, new = (_document(path, name, layout) for path in (source, tmp_path / "new"))
        fields = ("dtype", "data_type", "fill_value") if edit == "cast" else ("fill_value",)
        for document in (old, new):
            for field in fields:
                document.pop(field, None)
        assert new == old
    np.testing.assert_array_equal(restored["other"], TREE["other"])


@pytest.mark.sampled(2)
def test_random_values_do_not_depend_on_blocks_or_transactions(
    chunked: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, _ = chunked
    found = []
    for number, (block_bytes, memory) in enumerate(BUDGETS.values()):
        with monkeypatch.context() as patched:
            if block_bytes is not None:
                patched.setattr(grid.block_shape, "__defaults__", (block_bytes,))
            reinit = ("reinit", {"at": "long", "init": "normal", "stddev": "1"})
            _apply(source, tmp_path / str(number), memory, reinit)
        found.append(_restored(tmp_path / str(number))["long"])
    assert len({values.tobytes() for values in found}) == 1
    assert 0.7 < found[0].std() < 1.3


@pytest.mark.covers(2)
@pytest.mark.parametrize("compact", ["never", "always"])
def test_chunked_leaves_are_renamed_and_copied_as_they_are_stored(
    chunked: Any, compact: str, memory_bytes: int, tmp_path: Path
) -> None:
    source, layout = chunked
    steps = [("rename", {"at": "w", "to": "x/w"}), ("copy", {"at": "long", "to": "again"})]
    _apply(source, tmp_path / "new", memory_bytes, *steps, compact=compact)
    restored = _restored(tmp_path / "new")
    np.testing.assert_array_equal(restored["x"]["w"], VALUES)
    np.testing.assert_array_equal(restored["again"], LONG)
    np.testing.assert_array_equal(restored["long"], LONG)
    assert _document(tmp_path / "new", "x.w", layout) == _document(source, "w", layout)
    assert _document(tmp_path / "new", "again", layout) == _document(source, "long", layout)


@pytest.mark.sampled(2)
@pytest.mark.covers(2)
@pytest.mark.parametrize("donor_layout", LAYOUTS, ids=str)
def test_a_donor_in_other_chunks_of_any_layout_is_taken_exactly(
    chunked: Any, donor_layout: tuple[bool, bool], memory_bytes: int, tmp_path: Path
) -> None:
    source, _ = chunked
    donated = np.random.default_rng(5).normal(size=(10, 7)).astype(np.float32)
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=donor_layout[0], use_zarr3=donor_layout[1])
    with ocp.Checkpointer(handler) as checkpointer:
        small = jax.tree.map(lambda _: ocp.SaveArgs(chunk_byte_size=64), {"w": 0})
        args = ocp.args.PyTreeSave({"w": jax.numpy.asarray(donated)}, save_args=small)
        checkpointer.save(tmp_path / "donor", args=args)
    replace = ("replace", {"at": "w", "with": str(tmp_path / "donor")})
    _apply(source, tmp_path / "new", memory_bytes, replace)
    restored = _restored(tmp_path / "new")
    np.testing.assert_array_equal(restored["w"], donated)
    np.testing.assert_array_equal(restored["long"], LONG)


def test_all_zero_chunks_are_stored_and_restore(chunked: Any, tmp_path: Path) -> None:
    source, _ = chunked
    _apply(source, tmp_path / "new", 1 << 30, ("replace", {"at": "w", "with": "0"}))
    np.testing.assert_array_equal(_restored(tmp_path / "new")["w"], np.zeros((10, 7)))


def test_shardings_and_shards_of_four_devices_stay_as_they_were(tmp_path: Path) -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("data", "model"))
    spec = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data", "model"))
    values = np.random.default_rng(2).normal(size=(8, 6)).astype(np.float32)
    state = {"w": jax.device_put(values, spec), "v": jax.device_put(values * 2, spec)}
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "old", state)
    _apply(tmp_path / "old", tmp_path / "new", 1 << 30, ("rescale", {"at": "w", "by": "2"}))
    with ocp.StandardCheckpointer() as checkpointer:
        old = checkpointer.metadata(tmp_path / "old").item_metadata["w"]
        new = checkpointer.metadata(tmp_path / "new").item_metadata["w"]
        restored = checkpointer.restore(tmp_path / "new")
    assert new.storage == old.storage
    assert restored["w"].sharding == spec
    np.testing.assert_array_equal(restored["w"], values * np.float32(2))
    np.testing.assert_array_equal(restored["v"], values * np.float32(2))
