"""What is in a checkpoint and not of it: carried along whatever its name, and no reason to fail."""

import json
import shutil
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import CheckpointError
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.store.open.checkpoint import open_checkpoint
from tests.cli.conftest import SAMPLES

TREE = {"w": np.arange(6, dtype=np.float32), "v": np.arange(4, dtype=np.float32) + 1}


def _save(path: Path, tree: Any, *, ocdbt: bool, zarr3: bool = False) -> Path:
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=ocdbt, use_zarr3=zarr3)
    with ocp.Checkpointer(handler) as checkpointer:
        state = {name: jnp.asarray(values) for name, values in tree.items()}
        checkpointer.save(path, args=ocp.args.PyTreeSave(state))
    return path


def _restored(path: Path) -> Any:
    with ocp.PyTreeCheckpointer() as checkpointer:
        return checkpointer.restore(path)


def _apply(source: Path, new: Path, *steps: tuple[str, dict[str, Any]]) -> None:
    plan = plan_of([operation_from_options(name, fields) for name, fields in steps])
    surgery.apply(str(source), str(new), plan, options=surgery.Options(optimizer="keep"))


RESCALE = ("rescale", {"at": "w", "by": "2"})


@pytest.fixture(params=[True, False], ids=["ocdbt", "leaves"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return _save(tmp_path / "source", TREE, ocdbt=request.param)


def test_foreign_files_and_folders_come_along_even_with_arrays_and_names_of_databases(
    source: Path, tmp_path: Path
) -> None:
    shutil.copytree(source, tmp_path / "again")
    (tmp_path / "again").rename(source / "backup")
    (source / "ocdbt.notes.txt").write_text("by hand")
    (source / "ocdbt.old").mkdir()
    (source / "ocdbt.old" / "log").write_text("older")
    (source / "README").write_text("mine")
    (source / "empty").mkdir()
    inspected = surgery.inspect(str(source))
    for name in ("ocdbt.notes.txt", "ocdbt.old", "README", "backup", "empty"):
        assert name in inspected.foreign_files
    _apply(source, tmp_path / "new", RESCALE)
    new = tmp_path / "new"
    for name in ("ocdbt.notes.txt", "ocdbt.old/log", "README", "backup/_METADATA"):
        assert (new / name).read_bytes() == (source / name).read_bytes()
    assert (new / "empty").is_dir()
    np.testing.assert_array_equal(_restored(new / "backup")["w"], TREE["w"])
    np.testing.assert_array_equal(_restored(new)["w"], TREE["w"] * np.float32(2))


@pytest.mark.parametrize("zarr3", [False, True])
@pytest.mark.parametrize("name", ["d", "array_metadatas", "ocdbt_data"])
def test_a_leaf_may_be_called_like_a_folder_of_orbax(
    name: str, zarr3: bool, tmp_path: Path
) -> None:
    tree = {name: TREE["v"], "w": TREE["w"]}
    source = _save(tmp_path / "source", tree, ocdbt=False, zarr3=zarr3)
    assert sorted(map(str, open_checkpoint(str(source)).tree)) == sorted(tree)
    _apply(source, tmp_path / "scaled", ("rescale", {"at": name, "by": "2"}))
    np.testing.assert_array_equal(_restored(tmp_path / "scaled")[name], tree[name] * np.float32(2))
    _apply(tmp_path / "scaled", tmp_path / "renamed", ("rename", {"at": name, "to": "x"}))
    restored = _restored(tmp_path / "renamed")
    np.testing.assert_array_equal(restored["x"], tree[name] * np.float32(2))
    np.testing.assert_array_equal(restored["w"], tree["w"])
    for new in ("scaled", "renamed"):
        old, written = (p / "array_metadatas" for p in (source, tmp_path / new))
        assert [f.name for f in written.glob("process_*")] == [
            f.name for f in old.glob("process_*")
        ]


@pytest.mark.parametrize("ocdbt", [True, False], ids=["ocdbt", "leaves"])
def test_zarr_3_arrays_whose_names_look_like_chunks_are_told_apart(
    ocdbt: bool, tmp_path: Path
) -> None:
    tree = {"c": np.arange(3.0), "c/c": np.arange(4.0) + 10, "c/c/c": np.arange(5.0) + 20}
    source = _save(tmp_path / "source", tree, ocdbt=ocdbt, zarr3=True)
    _apply(source, tmp_path / "new", ("rescale", {"at": "re:c/c", "by": "2"}))
    restored = _restored(tmp_path / "new")
    np.testing.assert_array_equal(restored["c"], tree["c"].astype(np.float32))
    np.testing.assert_array_equal(restored["c/c/c"], tree["c/c/c"].astype(np.float32))


def test_a_stray_file_among_the_array_metadatas_is_carried_not_read(
    source: Path, tmp_path: Path
) -> None:
    (source / "array_metadatas" / ".DS_Store").write_bytes(b"\0\1\2")
    _apply(source, tmp_path / "new", ("rename", {"at": "v", "to": "x"}))
    assert (tmp_path / "new" / "array_metadatas" / ".DS_Store").read_bytes() == b"\0\1\2"
    np.testing.assert_array_equal(_restored(tmp_path / "new")["x"], TREE["v"])


@pytest.mark.parametrize("text", ["{bad", "[]", '{"sharding_type": "NamedSharding"}'])
def test_a_damaged_entry_of_the_shardings_is_refused_by_name(
    source: Path, text: str, tmp_path: Path
) -> None:
    shardings = json.loads((source / "_sharding").read_text())
    (source / "_sharding").write_text(json.dumps(dict.fromkeys(shardings, text)))
    with pytest.raises(CheckpointError, match="`_sharding`"):
        _apply(source, tmp_path / "new", ("rename", {"at": "v", "to": "x"}))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("place", ["logs/me", "me"])
def test_a_link_to_a_folder_around_it_is_refused_by_name(
    source: Path, place: str, tmp_path: Path
) -> None:
    (source / "logs").mkdir()
    (source / place).symlink_to(source)
    with pytest.raises(CheckpointError, match=rf"source/{place}' leads in a circle"):
        _apply(source, tmp_path / "new", RESCALE)
    assert not (tmp_path / "new").exists()


def test_a_link_that_leads_nowhere_is_refused_by_name(source: Path, tmp_path: Path) -> None:
    (source / "note").symlink_to("/nonexistent/x")
    with pytest.raises(CheckpointError, match="source/note' cannot be read"):
        _apply(source, tmp_path / "new", RESCALE)


LEFT = [".extra.surgery-tmp-0a1b2c3d", ".extra.surgery-tmp-lock", "extra.surgery-old"]


def _leave(folder: Path, name: str) -> None:
    """What a run that puts something into a folder has there, or has left."""
    left = folder / name
    if name.endswith("lock"):
        left.write_text("{}")
    else:
        left.mkdir()
        (left / "half").write_bytes(bytes(1000))


@pytest.mark.parametrize("name", LEFT)
def test_what_another_run_has_in_an_item_does_not_come_along(
    source: Path, tmp_path: Path, name: str
) -> None:
    _leave(source, name)
    (source / "mine").write_text("kept")
    _apply(source, tmp_path / "new", RESCALE)
    new = {path.name for path in (tmp_path / "new").iterdir()}
    assert {"mine", "_METADATA"} <= new
    assert name not in new


@pytest.mark.parametrize("name", LEFT)
def test_what_another_run_has_in_a_step_or_left_there_does_not_come_along(
    tmp_path: Path, name: str
) -> None:
    """It may be half of something, and belongs to that run: `clean` would find it in both places."""
    run = tmp_path / "run"
    shutil.copytree(SAMPLES / "digits_manager", run)
    _leave(run / "250", name)
    (run / "250" / "notes").mkdir()
    (run / "250" / "notes" / "mine").write_text("kept")
    rescale = plan_of([operation_from_options("rescale", {"at": "params/**", "by": "2"})])
    options = surgery.Options(optimizer="keep", as_step=600)
    surgery.apply(f"{run}@250", str(run), rescale, options=options)
    new = {path.name for path in (run / "600").iterdir()}
    old = {path.name for path in (run / "250").iterdir()}
    assert new == old - {name, "metrics"} | {"surgery.json"}  # what was measured is of other values
    assert (run / "600" / "notes" / "mine").read_text() == "kept"
