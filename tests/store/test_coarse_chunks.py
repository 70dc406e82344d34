"""A checkpoint whose chunks are larger than the blocks that are read of it: each chunk is decoded once."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
import tensorstore as ts

from surgery_cli import surgery
from surgery_cli.draft.expression import LeafRef, Stored
from surgery_cli.engine import grid
from surgery_cli.engine.held import Band
from surgery_cli.engine.stored_reads import StoredReads
from surgery_cli.planning import operation_from_options, plan_from_document, plan_of
from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.store.open.item import PytreeItem
from surgery_cli.store.orbax.arrays import read_array
from surgery_cli.store.orbax.chunk_keeper import ChunkKeeper
from surgery_cli.tree.paths import LeafPath

SHAPE = (2560, 2048)
LEAF_BYTES = 4 * 2560 * 2048
FINE = np.random.default_rng(1).standard_normal(SHAPE, np.float32)
COARSE = np.random.default_rng(2).standard_normal(SHAPE, np.float32)


def _save(path: Path, values: np.ndarray, chunk_bytes: int | None, **layout: bool) -> str:
    tree = {"w": jax.numpy.asarray(values), "b": jax.numpy.arange(4.0)}
    chunks = jax.tree.map(lambda _: ocp.SaveArgs(chunk_byte_size=chunk_bytes), tree)
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(**layout)) as checkpointer:
        checkpointer.save(path, args=ocp.args.PyTreeSave(tree, save_args=chunks))
    return str(path)


@pytest.fixture(scope="module")
def fine(tmp_path_factory: pytest.TempPathFactory) -> str:
    return _save(tmp_path_factory.mktemp("fine") / "saved", FINE, 1 << 20)


@pytest.fixture(scope="module", params=[True, False], ids=["ocdbt", "leaves"])
def coarse(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A leaf of 20 MiB in one chunk."""
    path = tmp_path_factory.mktemp("coarse") / "saved"
    return _save(path, COARSE, None, use_ocdbt=request.param)


@pytest.fixture(autouse=True)
def _many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid.block_shape, "__defaults__", (1 << 20,))


def _read_by(function: Callable[[], Any]) -> int:
    """Bytes that this process reads from files while a function runs."""

    def count() -> int:
        return int(Path("/proc/self/io").read_text().split()[1])

    before = count()
    function()
    return count() - before


def _edit(source: str, new: Path, name: str, **fields: Any) -> None:
    plan = plan_of([operation_from_options(name, {"at": "w", **fields})])
    surgery.apply(source, str(new), plan, options=surgery.Options(compact="never"))


def _restored(path: Path) -> np.ndarray:
    with ocp.PyTreeCheckpointer() as checkpointer:
        return np.asarray(checkpointer.restore(path)["w"])


def test_an_average_with_it_decodes_it_once(fine: str, coarse: str, tmp_path: Path) -> None:
    new = tmp_path / "new"
    read = _read_by(lambda: _edit(fine, new, "average", with_=coarse))
    assert read < 3.5 * LEAF_BYTES  # two members, and the result to verify it
    both = (FINE.astype(np.float64) + COARSE) / 2
    np.testing.assert_array_equal(_restored(new), both.astype(np.float32))


def test_its_values_in_the_others_chunks_are_decoded_once(coarse: str, tmp_path: Path) -> None:
    other = _save(tmp_path / "zarr3", FINE, 1 << 20, use_zarr3=True)
    new = tmp_path / "new"
    read = _read_by(lambda: _edit(other, new, "replace", **{"with": coarse}))
    assert read < 3.5 * LEAF_BYTES
    np.testing.assert_array_equal(_restored(new), COARSE)


def test_a_comparison_with_it_decodes_it_once(fine: str, coarse: str) -> None:
    found: list[Any] = []
    read = _read_by(lambda: found.append(surgery.diff(fine, coarse, ["w"])))
    assert read < 2.5 * LEAF_BYTES
    assert found[0].changed[0].differing == int((FINE != COARSE).sum())


def test_what_the_chunk_takes_is_in_the_preview(fine: str, coarse: str) -> None:
    plan = plan_of([operation_from_options("average", {"at": "w", "with_": coarse})])
    with_room = surgery.plan(fine, plan, options=surgery.Options(memory_bytes=256 << 20))
    without = surgery.plan(fine, plan, options=surgery.Options(memory_bytes=16 << 20))
    assert not any("--memory" in note for note in with_room.notes)
    assert any("--memory" in note for note in without.notes)


def test_chunks_are_let_go_once_all_was_read_also_where_a_block_is_whole_chunks(
    tmp_path: Path,
) -> None:
    values = np.arange(32, dtype=np.float32).reshape(8, 4)
    item = open_checkpoint(_save(tmp_path / "saved", values, 64)).items[""]
    assert isinstance(item, PytreeItem)
    assert item.store is not None
    chunk = item.store.arrays["w"].document.chunk_shape
    assert chunk == (4, 4)
    for _ in range(2):
        for rows in (slice(0, 3), slice(3, 4), slice(4, 8)):
            assert item.store.chunk_keeper.holds("w") is (rows.start > 0)
            found = read_array(item.store, "w", (rows, slice(0, 4)))
            np.testing.assert_array_equal(found, values[rows])
        assert not item.store.chunk_keeper.holds("w")


@pytest.mark.parametrize("is_ocdbt", [True, False], ids=["ocdbt", "leaves"])
@pytest.mark.parametrize("is_small", [True, False], ids=["zeros", "random"])
def test_a_chunk_is_decoded_once_however_little_is_stored_of_it(
    tmp_path: Path, is_small: bool, is_ocdbt: bool
) -> None:
    """What takes little is read from memory."""
    values = np.zeros(SHAPE, np.float32) if is_small else COARSE
    item = open_checkpoint(_save(tmp_path / "saved", values, None, use_ocdbt=is_ocdbt)).items[""]
    assert isinstance(item, PytreeItem)
    assert item.store is not None
    read_array(item.store, "b")  # nodes of the database

    def decoded() -> int:
        (read,) = ts.experimental_collect_matching_metrics("/tensorstore/cache/kvs_cache_read")
        return sum(one["value"] for one in read["values"] if one["category"] == "changed")

    before = decoded()
    for start in range(0, SHAPE[0], 256):
        found = read_array(item.store, "w", (slice(start, start + 256), slice(0, SHAPE[1])))
        np.testing.assert_array_equal(found, values[start : start + 256])
    assert decoded() - before <= 2
    assert not item.store.chunk_keeper.holds("w")


def test_a_chunk_that_is_read_for_a_band_of_blocks_is_not_kept_beside_it(tmp_path: Path) -> None:
    values = np.arange(32, dtype=np.float32).reshape(8, 4)
    opened = open_checkpoint(_save(tmp_path / "saved", values, 64))
    path = LeafPath(("w",))
    stored, item = Stored(LeafRef("", path), opened.tree[path]), opened.items[""]
    rows, columns = slice(0, 2), slice(0, 4)  # of chunks of four rows
    band = Band([(stored, (rows, columns))], 1, 0, 0)
    StoredReads({"": opened}).read_into(band, stored, (rows, columns))
    np.testing.assert_array_equal(band.stored[id(stored)][1], values[rows])
    assert isinstance(item, PytreeItem)
    assert item.store is not None
    assert not item.store.chunk_keeper.holds("w")


LAYERS = 5
STACKED = {"a": (1024, LAYERS, 256), "b": (256, LAYERS, 1024)}


@pytest.fixture(scope="module")
def scanned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two leaves of 5 MiB, each with five layers in one chunk, as a process by itself saves what `nn.scan` stacks."""
    random = np.random.default_rng(3)
    tree = {"layers": {name: random.standard_normal(s, np.float32) for name, s in STACKED.items()}}
    place = tmp_path_factory.mktemp("scanned") / "saved"
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(place, tree)
    return place


@pytest.mark.sampled(2)
@pytest.mark.parametrize("memory_bytes", [1 << 20, 64 << 20], ids=["too little", "enough"])
@pytest.mark.parametrize("output", ["orbax", "safetensors", "npz", "t5x"])
def test_layers_are_taken_out_of_chunks_that_hold_all_of_them_while_these_are_decoded_once(
    scanned: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    output: str,
    memory_bytes: int,
) -> None:
    source = scanned
    if output == "t5x":
        source = tmp_path / "named"
        renamed = {"op": "rename", "at": "layers", "to": "target/layers"}
        surgery.apply(str(scanned), str(source), plan_from_document({"edits": [renamed]}))
    kept: set[tuple[int, str]] = set()
    most = [0]
    context, let_go = ChunkKeeper.context, ChunkKeeper.let_go

    def keeping(self: ChunkKeeper, name: str, count: int, parent: Any) -> Any:
        kept.add((id(self), name))
        most[0] = max(most[0], len(kept))
        return context(self, name, count, parent)

    def letting_go(self: ChunkKeeper, name: str) -> None:
        kept.discard((id(self), name))
        let_go(self, name)

    monkeypatch.setattr(ChunkKeeper, "context", keeping)
    monkeypatch.setattr(ChunkKeeper, "let_go", letting_go)
    below = "target/layers" if output == "t5x" else "layers"
    edits = [{"op": "unstack", "at": below, "axis": 1, "to": f"{below}_{{0..}}"}]
    written = {"output": {"format": output}} if output != "orbax" else {}
    plan = plan_from_document({"edits": edits, **written})
    options = surgery.Options(memory_bytes=memory_bytes)
    new = tmp_path / ("new.npz" if output == "npz" else "new")
    read = _read_by(lambda: surgery.apply(str(source), str(new), plan, options=options))
    values_bytes = sum(4 * math.prod(shape) for shape in STACKED.values())
    assert read < 3.5 * values_bytes  # what was written is read, too, in npz twice
    assert not kept
    # with more, blocks of two leaves are on their way at once
    assert most[0] == 1 or memory_bytes > 1 << 20
    stacked, found = open_checkpoint(str(source)), open_checkpoint(str(new))
    for name in STACKED:
        values = stacked.read(next(path for path in stacked.tree if path[-1] == name))
        for layer in range(LAYERS):
            (path,) = (
                p for p in found.tree if str(p).replace(".", "/").endswith(f"layers_{layer}/{name}")
            )
            np.testing.assert_array_equal(found.read(path), values[:, layer])
