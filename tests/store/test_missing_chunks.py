"""Arrays that lack a chunk: refused by name where the chunk must be there, read as the fill value where it need not."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest
import tensorstore as ts

from surgery_cli.errors import CheckpointError
from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.store.orbax.zarr import parse
from surgery_cli.tree.paths import LeafPath
from tests.fixture_truths import FIXTURES


def _old(name: str, folder: Path) -> Path:
    """A copy of a checkpoint of a release that promised nothing of fill values."""
    return Path(shutil.copytree(FIXTURES / name, folder / "old"))


def _without_promise(path: Path) -> None:
    """Take the promise that chunks of fill values were stored out of ``_METADATA``."""
    document = json.loads((path / "_METADATA").read_text())
    del document["store_array_data_equal_to_fill_value"]
    (path / "_METADATA").write_text(json.dumps(document))


@pytest.mark.parametrize("name", ["orbax-0.2.7/sharded4_noocdbt", "orbax-0.5.10/sharded4_noocdbt"])
def test_a_chunk_that_is_gone_from_an_old_checkpoint_is_named_not_read_as_zeros(
    name: str, tmp_path: Path
) -> None:
    old = _old(name, tmp_path)
    chunk = max(old.glob("*/[0-9]*"), key=lambda file: file.stat().st_size)
    chunk.unlink()
    with pytest.raises(CheckpointError) as caught:
        _ = open_checkpoint(str(old)).tree
    assert f"'{chunk.parent.name}'" in str(caught.value)
    assert "is incomplete" in str(caught.value)


@pytest.mark.parametrize("promised", [True, False])
@pytest.mark.parametrize("zarr3", [False, True])
def test_a_chunk_whose_file_is_empty_is_refused_when_the_checkpoint_is_opened(
    promised: bool, zarr3: bool, tmp_path: Path
) -> None:
    path = tmp_path / "source"
    tree = {"w": np.ones((4, 2), np.float32), "n": np.float32(3)}
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=False, use_zarr3=zarr3)
    with ocp.Checkpointer(handler) as checkpointer:
        checkpointer.save(path, args=ocp.args.PyTreeSave(tree))
    (path / "w" / "0.0.bak").touch()  # somebody's own
    if not promised:
        _without_promise(path)
    assert len(open_checkpoint(str(path)).tree) == 2
    for name, chunk in (
        {"w": "c/0/0", "n": "c"}.items() if zarr3 else {"w": "0.0", "n": "0"}.items()
    ):
        whole = (path / name / chunk).read_bytes()
        (path / name / chunk).write_bytes(b"")
        with pytest.raises(CheckpointError) as caught:
            _ = open_checkpoint(str(path)).tree
        assert f"'{name}' in '{path}' is incomplete" in str(caught.value)
        assert f"files of 1 of 1 chunks are empty (first: '{chunk}')" in str(caught.value)
        (path / name / chunk).write_bytes(whole)


def test_a_stray_file_does_not_stand_in_for_a_chunk(tmp_path: Path) -> None:
    old = _old("orbax-0.5.10/sharded4_noocdbt", tmp_path)
    chunk = max(old.glob("*/[0-9]*"), key=lambda file: file.stat().st_size)
    chunk.rename(chunk.with_name(chunk.name + ".bak"))
    with pytest.raises(CheckpointError) as caught:
        _ = open_checkpoint(str(old)).tree
    assert f"(first: '{chunk.name}')" in str(caught.value)


@pytest.mark.parametrize("ocdbt", [True, False])
def test_a_recorded_fill_value_stands_for_chunks_that_nobody_promised_to_store(
    ocdbt: bool, tmp_path: Path
) -> None:
    path = tmp_path / "source"
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=ocdbt)) as checkpointer:
        checkpointer.save(path, args=ocp.args.PyTreeSave({"w": np.ones(4, np.float32)}))
    _rewrite(path, ocdbt=ocdbt, fill_value=2.5)
    with pytest.raises(CheckpointError):
        _ = open_checkpoint(str(path)).tree
    _without_promise(path)
    values = open_checkpoint(str(path)).read(LeafPath(["w"]))
    np.testing.assert_array_equal(values, np.array([1, 1, 2.5, 2.5], np.float32))
    _rewrite(path, ocdbt=ocdbt, fill_value=None)
    with pytest.raises(CheckpointError) as caught:
        _ = open_checkpoint(str(path)).tree
    assert "1 of 2 chunks are not stored (first: '1')" in str(caught.value)


def _rewrite(path: Path, *, ocdbt: bool, fill_value: float | None) -> None:
    """Write `w` anew: two chunks of which only the first is stored."""
    base: dict[str, Any] = {"driver": "file", "path": f"{path}/"}
    kvstore = (
        {"driver": "ocdbt", "base": base, "path": "w/"} if ocdbt else base | {"path": f"{path}/w/"}
    )
    metadata = {"shape": [4], "chunks": [2], "dtype": "<f4", "fill_value": fill_value}
    spec = {"driver": "zarr", "kvstore": kvstore, "metadata": metadata}
    array = ts.open(spec, create=True, delete_existing=True).result()
    array[:2].write(np.ones(2, np.float32)).result()


NO_CHUNKS = ("", ".zarray", "zarr.json", "7", "00", "0.bak", "0.0.0.0", "c/7", "c/00", "c.x", "d/0")


@pytest.mark.parametrize(
    ("fields", "keys"),
    [
        ({"shape": [], "chunks": []}, {"0"}),
        ({"shape": [3], "chunks": [2]}, {"0", "1"}),
        ({"shape": [3, 2], "chunks": [3, 1]}, {"0.0", "0.1"}),
        ({"shape": [3, 2], "chunks": [3, 1], "dimension_separator": "/"}, {"0/0", "0/1"}),
        ({"shape": [0, 2], "chunks": [1, 2]}, set()),
    ],
)
def test_chunks_of_zarr_2_have_the_keys_that_its_specification_gives(
    fields: dict[str, Any], keys: set[str]
) -> None:
    document = parse(json.dumps({"zarr_format": 2, "dtype": "<f4", **fields}).encode())
    assert document.chunk_keys == keys
    assert [key for key in (*sorted(keys), *NO_CHUNKS) if document.is_chunk(key)] == sorted(keys)


@pytest.mark.parametrize(
    ("shape", "encoding", "keys"),
    [
        ([], {"name": "default"}, {"c"}),
        ([3], {"name": "default"}, {"c/0", "c/1"}),
        ([3, 1], {"name": "default"}, {"c/0/0", "c/1/0"}),
        ([3], {"name": "default", "configuration": {"separator": "."}}, {"c.0", "c.1"}),
        ([], {"name": "v2"}, {"0"}),
        ([3, 1], {"name": "v2"}, {"0.0", "1.0"}),
        ([3, 1], {"name": "v2", "configuration": {"separator": "/"}}, {"0/0", "1/0"}),
    ],
)
def test_chunks_of_zarr_3_have_the_keys_that_its_specification_gives(
    shape: list[int], encoding: dict[str, Any], keys: set[str]
) -> None:
    fields = {
        "zarr_format": 3,
        "shape": shape,
        "data_type": "float32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2] * len(shape)}},
        "chunk_key_encoding": encoding,
        "codecs": [],
    }
    document = parse(json.dumps(fields).encode())
    assert document.chunk_keys == keys
    assert [key for key in (*sorted(keys), *NO_CHUNKS) if document.is_chunk(key)] == sorted(keys)


@pytest.mark.parametrize("zarr3", [False, True], ids=["zarr", "zarr3"])
@pytest.mark.parametrize("goes", ["a chunk", "the array"])
def test_what_goes_after_the_checkpoint_was_opened_is_not_read_as_zeros(
    tmp_path: Path, goes: str, zarr3: bool
) -> None:
    """The document of an array is not read again, which would tell that the array is gone."""
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=False, use_zarr3=zarr3)
    with ocp.Checkpointer(handler) as checkpointer:
        checkpointer.save(tmp_path / "ck", {"w": np.ones((8, 8), np.float32), "n": np.int32(3)})
    opened = open_checkpoint(str(tmp_path / "ck"))
    for path in (LeafPath(("w",)), LeafPath(("n",))):
        assert opened.read(path) is not None
        (folder,) = tmp_path.glob(f"ck/{path[-1]}")
        if goes == "a chunk":
            files = [file for file in folder.rglob("*") if file.is_file()]
            max(files, key=lambda file: file.name not in (".zarray", "zarr.json")).unlink()
        else:
            shutil.rmtree(folder)
        with pytest.raises(CheckpointError, match="cannot be read"):
            opened.read(path)
