"""Symbolic links inside a checkpoint: read as what they lead to, and never needed by what is made of it."""

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.planning import operation_from_options, plan_of

TREE = {"a": np.arange(4096, dtype=np.float32), "b": np.arange(4096, dtype=np.float32) + 7}
RESCALE = plan_of([operation_from_options("rescale", {"at": "a", "by": "2"})])


def _save(path: Path, *, ocdbt: bool) -> Path:
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=ocdbt)) as checkpointer:
        checkpointer.save(path, args=ocp.args.PyTreeSave(TREE))
    return path


def _moved_to_blobs(path: Path, blobs: Path, *, relative: bool) -> None:
    """Put a link in the place of every file, as hub caches do."""
    blobs.mkdir()
    files = [file for file in path.rglob("*") if file.is_file()]
    for number, file in enumerate(files):
        blob = blobs / str(number)
        file.rename(blob)
        file.symlink_to(os.path.relpath(blob, file.parent) if relative else blob)


def _restored(path: Path) -> Any:
    with ocp.PyTreeCheckpointer() as checkpointer:
        return checkpointer.restore(path)


@pytest.mark.parametrize("link", ["hard", "reflink", "never"])
@pytest.mark.parametrize("relative", [True, False], ids=["relative", "absolute"])
@pytest.mark.parametrize("ocdbt", [True, False], ids=["ocdbt", "leaves"])
def test_a_checkpoint_of_links_is_edited_and_the_result_stands_without_them(
    ocdbt: bool, relative: bool, link: Any, tmp_path: Path
) -> None:
    source = _save(tmp_path / "hub" / "snapshots" / "main", ocdbt=ocdbt)
    _moved_to_blobs(source, tmp_path / "hub" / "blobs", relative=relative)
    new = tmp_path / "elsewhere" / "deeper" / "new"
    surgery.apply(str(source), str(new), RESCALE, options=surgery.Options(link=link))
    assert [path for path in new.rglob("*") if path.is_symlink()] == []
    shutil.rmtree(tmp_path / "hub")
    restored = _restored(new)
    np.testing.assert_array_equal(restored["a"], TREE["a"] * np.float32(2))
    np.testing.assert_array_equal(restored["b"], TREE["b"])


def test_files_behind_links_inside_the_checkpoint_are_shared(tmp_path: Path) -> None:
    source = _save(tmp_path / "source", ocdbt=False)
    (source / "b" / "0").rename(source / "b" / "kept")
    (source / "b" / "0").symlink_to("kept")
    surgery.apply(str(source), str(tmp_path / "new"), RESCALE, options=surgery.Options(link="hard"))
    assert (tmp_path / "new" / "b" / "0").samefile(source / "b" / "kept")


@pytest.mark.parametrize("link", ["auto", "hard"])
@pytest.mark.parametrize("of", ["files", "folders", "step"])
@pytest.mark.parametrize("ocdbt", [True, False], ids=["ocdbt", "leaves"])
def test_files_that_links_lead_to_elsewhere_are_copied_and_listed_before(
    ocdbt: bool, of: str, link: Any, tmp_path: Path
) -> None:
    source = root = _save(tmp_path / "source", ocdbt=ocdbt)
    away = tmp_path / "away"
    if of == "files":
        _moved_to_blobs(source, away, relative=True)
    elif of == "folders":
        away.mkdir()
        for folder in [path for path in source.iterdir() if path.is_dir()]:
            folder.rename(away / folder.name)
            folder.symlink_to(away / folder.name)
    else:
        root = tmp_path / "root"
        (root / "3").mkdir(parents=True)
        source.rename(away)
        (root / "3" / "default").symlink_to(away)
    options = surgery.Options(link=link)
    new = tmp_path / "new"
    (note,) = [
        note
        for note in surgery.plan(str(root), RESCALE, options=options).notes
        if "lead out of the checkpoint" in note
    ]
    assert "and copied: '" in note
    before = {path.stat().st_ino for path in away.rglob("*") if path.is_file()}
    report = surgery.apply(str(root), str(new), RESCALE, options=options)
    after = {path.stat().st_ino for path in new.rglob("*") if path.is_file()}
    assert not before & after
    assert report.shared == []
    written = new / "3" / "default" if of == "step" else new
    np.testing.assert_array_equal(_restored(written)["b"], TREE["b"])


@pytest.mark.parametrize("ocdbt", [True, False], ids=["ocdbt", "leaves"])
def test_links_that_were_read_as_files_are_named_before_and_in_an_inspection(
    ocdbt: bool, tmp_path: Path
) -> None:
    source = _save(tmp_path / "source", ocdbt=ocdbt)
    assert "symbolic links" not in " ".join(surgery.inspect(str(source)).notes)
    _moved_to_blobs(source, tmp_path / "blobs", relative=True)
    for notes in (surgery.inspect(str(source)).notes, surgery.plan(str(source), RESCALE).notes):
        (note,) = [note for note in notes if "symbolic links" in note]
        assert (
            "'d/" in note or "'a/0'" in note or "'a/.zarray'" in note or "'ocdbt.process_0/" in note
        )
