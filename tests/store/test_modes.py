"""Whoever may not read the source may not read what is made of it, at no moment."""

import os
import shutil
import stat
from pathlib import Path

import flax.serialization
import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.store.write import staging

TREE = {"a": np.arange(64, dtype=np.float32), "b": np.arange(64, dtype=np.float32) + 7}
RESCALE = plan_of([operation_from_options("rescale", {"at": "**/a", "by": "2"})])


def _modes(path):
    every = [path, *path.rglob("*")] if path.is_dir() else [path]
    return {str(found.relative_to(path)): stat.S_IMODE(found.stat().st_mode) for found in every}


def _chmod(path, folders, files):
    for found in [path, *path.rglob("*")]:
        found.chmod(folders if found.is_dir() else files)


@pytest.fixture(params=["ocdbt", "leaves", "root"])
def source(request, tmp_path):
    path = tmp_path / "source"
    if request.param == "root":
        with ocp.CheckpointManager(path) as manager:
            manager.save(3, args=ocp.args.StandardSave(TREE), metrics={"loss": 1.0})
            manager.wait_until_finished()
        return path
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=request.param == "ocdbt")
    with ocp.Checkpointer(handler) as checkpointer:
        checkpointer.save(path, args=ocp.args.PyTreeSave(TREE))
    return path


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("folders", "files"), [(0o700, 0o600), (0o750, 0o640), (0o770, 0o660), (0o755, 0o600)]
)
@pytest.mark.parametrize("how", ["auto", "never", "compact"])
def test_files_and_directories_of_a_result_have_the_modes_of_the_source(
    source, tmp_path, folders, files, how
):
    _chmod(source, folders, files)
    compact = "always" if how == "compact" else "never"
    link = "auto" if how == "compact" else how
    new = tmp_path / "new"
    surgery.apply(
        str(source), str(new), RESCALE, options=surgery.Options(link=link, compact=compact)
    )
    for name, mode in _modes(new).items():
        assert mode == (folders if (new / name).is_dir() else files), name


def test_a_renamed_step_and_its_record_stay_private(tmp_path):
    root = tmp_path / "root"
    with ocp.CheckpointManager(root) as manager:
        manager.save(3, args=ocp.args.StandardSave(TREE))
        manager.wait_until_finished()
    _chmod(root / "3", 0o700, 0o600)
    new = tmp_path / "new"
    surgery.apply(str(root), str(new), RESCALE, options=surgery.Options(as_step=4))
    modes = _modes(new / "4")
    assert modes["surgery.json"] == 0o600
    assert {mode for name, mode in modes.items() if (new / "4" / name).is_dir()} == {0o700}


def test_a_private_file_of_flax_gets_a_private_result_and_record(tmp_path):
    source = tmp_path / "w.msgpack"
    source.write_bytes(flax.serialization.msgpack_serialize(TREE))
    source.chmod(0o600)
    surgery.apply(str(source), str(tmp_path / "new.msgpack"), RESCALE)
    assert _modes(tmp_path / "new.msgpack") == {".": 0o600}
    assert _modes(tmp_path / ".new.msgpack.surgery.json") == {".": 0o600}


def test_a_private_donor_makes_the_result_private(tmp_path):
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "source", TREE)
        checkpointer.save(tmp_path / "donor", TREE)
    (tmp_path / "donor").chmod(0o700)
    edit = operation_from_options("replace", {"at": "a", "with": str(tmp_path / "donor")})
    surgery.apply(str(tmp_path / "source"), str(tmp_path / "new"), plan_of([edit]))
    opened = [mode for name, mode in _modes(tmp_path / "new").items() if mode & 0o077]
    linked = [p for p in (tmp_path / "new").rglob("*") if p.is_file() and p.stat().st_nlink > 1]
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
    assert len(opened) <= len(linked)  # which nobody reaches


def test_nobody_else_gets_into_the_place_in_which_a_result_is_built(source, tmp_path, monkeypatch):
    seen = []
    sync_tree = staging.sync_tree

    def looking(path):
        seen.append(stat.S_IMODE(path.parent.stat().st_mode))
        sync_tree(path)

    monkeypatch.setattr(staging, "sync_tree", looking)
    umask = os.umask(0)
    try:
        surgery.apply(str(source), str(tmp_path / "new"), RESCALE)
    finally:
        os.umask(umask)
    assert seen[0] == 0o700


def test_a_group_that_inherits_goes_on_inheriting(tmp_path):
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "source", TREE)
    (tmp_path / "source").chmod(0o2770)
    surgery.apply(str(tmp_path / "source"), str(tmp_path / "new"), RESCALE)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o2770


def test_a_read_only_source_has_a_result_that_its_owner_can_remove(tmp_path):
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "source", TREE)
    _chmod(tmp_path / "source", 0o555, 0o444)
    surgery.apply(str(tmp_path / "source"), str(tmp_path / "new"), RESCALE)
    assert {
        mode & 0o700
        for name, mode in _modes(tmp_path / "new").items()
        if (tmp_path / "new" / name).is_dir()
    } == {0o700}
    shutil.rmtree(tmp_path / "new")
    assert Path(tmp_path / "source" / "_METADATA").exists()
