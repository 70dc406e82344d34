"""What is not a checkpoint says what it is."""

import io
import pickle
import shutil
import tarfile
from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli.errors import CheckpointError, PlanError, SurgeryError
from surgery_cli.store.locate.location import locate
from surgery_cli.store.open.checkpoint import open_checkpoint
from tests.fixture_truths import FIXTURES

FLAT = FIXTURES / "orbax-0.8.0" / "odd_lst"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0000\nsize 123456\n"


class _Bomb:
    """Fails the test if it is ever unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return pytest.fail, ("a pickle was loaded",)


def _refused(path: Path | str) -> SurgeryError:
    with pytest.raises(SurgeryError) as refused:
        locate(str(path))
    error = refused.value
    assert len(error.problems) == 1
    assert len(str(error).splitlines()) in (2, 3)
    return error


def _npz() -> bytes:
    body = io.BytesIO()
    np.savez(body, w=np.ones(2))
    return body.getvalue()


def _tar(name: str = "run/1/_METADATA") -> bytes:
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w") as archive:
        archive.addfile(tarfile.TarInfo(name))
    return body.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("model.pkl", pickle.dumps(_Bomb()), "is a pickle"),
        ("model", pickle.dumps(_Bomb(), protocol=2), "is a pickle"),
        ("model.pkl", pickle.dumps(_Bomb(), protocol=0), "is a pickle"),
        ("model.pt", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", "before PyTorch 1.6"),
        ("model.pt", _tar("sys_info"), "before PyTorch 1.6"),
        ("weights.h5", b"\x89HDF\r\n\x1a\n" + bytes(64), "is an HDF5 file"),
        ("w.npy", b"\x93NUMPY\x01\x00", "is a NumPy array file, not a checkpoint"),
        ("w.bak", b"\x93NUMPY\x01\x00", "is a NumPy array file, and its name does not say so"),
        ("w", _npz(), "is a NumPy array file, and its name does not say so"),
        ("model.ckpt-7.index", b"\x00\x01", "belongs to a TensorFlow checkpoint"),
        ("model.ckpt-7.data-00000-of-00001", b"\x00\x01", "belongs to a TensorFlow checkpoint"),
        ("model.safetensors", POINTER, "is a Git-LFS pointer"),
        ("checkpoint_3", POINTER, "is a Git-LFS pointer"),
        ("run.tar", _tar(), "is an archive"),
        ("run.tar.gz", b"\x1f\x8b\x08\x00", "is an archive"),
        ("model.gguf", b"GGUF\x03", "is a GGUF file"),
        ("notes.txt", b"hello", "is not a checkpoint file"),
        ("empty", b"", "is not a checkpoint file"),
    ],
)
def test_a_file_that_is_no_checkpoint_says_what_it_is(
    tmp_path: Path, name: str, content: bytes, says: str
) -> None:
    (tmp_path / name).write_bytes(content)
    error = _refused(tmp_path / name)
    assert says in error.problems[0].what
    assert error.exit_code == 3


@pytest.mark.parametrize("name", ["_METADATA", "manifest.ocdbt"])
def test_one_file_of_a_checkpoint_names_its_directory(name: str) -> None:
    assert "one file of a checkpoint" in _refused(FLAT / name).problems[0].what


def test_the_aggregate_file_of_a_checkpoint_names_its_directory() -> None:
    path = FIXTURES / "orbax-0.2.7" / "odd_lst"
    assert _refused(path / "checkpoint").problems[0].fix == f"name '{path}'"


def test_an_array_of_a_checkpoint_names_its_directory() -> None:
    path = FIXTURES / "orbax-0.2.7" / "odd_zero"
    assert _refused(path / "x").problems[0].fix == f"name '{path}'"


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (["saved_model.pb", "variables/variables.index"], "is a TensorFlow SavedModel"),
        (["model.index", "model.data-00000-of-00001", "checkpoint"], "is a TensorFlow checkpoint"),
        (["d/0123", "ocdbt.process_0/d/0123"], "without its 'manifest.ocdbt'"),
        ([f"d/{'0f' * 16}"], "without its 'manifest.ocdbt'"),
        (["d/notes.txt"], "is not a checkpoint"),
        (["ocdbt.notes/a.txt"], "is not a checkpoint"),
        (["weights.pkl"], "is not an Orbax checkpoint"),
        (["notes.txt"], "is not a checkpoint"),
        ([], "is empty"),
    ],
)
def test_a_directory_that_is_no_checkpoint_says_what_it_is(
    tmp_path: Path, files: list[str], says: str
) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        content = pickle.dumps(_Bomb()) if name.endswith(".pkl") else b"model_checkpoint_path: x\n"
        (tmp_path / name).write_bytes(content)
    error = _refused(tmp_path)
    assert says in error.problems[0].what
    assert error.exit_code == 3


def test_an_ocdbt_item_without_its_manifest_and_metadata_is_no_empty_tree(tmp_path: Path) -> None:
    managed = tmp_path / "run"
    with ocp.CheckpointManager(managed) as manager:
        manager.save(3, args=ocp.args.StandardSave({"w": np.ones(4, np.float32)}))
    item = managed / "3" / "default"
    for name in ("_METADATA", "manifest.ocdbt"):
        (item / name).unlink()
    with pytest.raises(CheckpointError) as caught:
        assert open_checkpoint(str(managed)).tree
    assert caught.value.problems[0].what == f"'{item}' has no 'manifest.ocdbt'"
    assert caught.value.exit_code == 3


def test_an_item_in_which_nothing_says_what_the_tree_is_is_no_empty_tree(tmp_path: Path) -> None:
    managed = tmp_path / "run"
    with ocp.CheckpointManager(managed) as manager:
        manager.save(3, args=ocp.args.StandardSave({"w": np.ones(4, np.float32)}))
    item = managed / "3" / "default"
    for file in item.iterdir():
        if file.name != "_sharding":
            shutil.rmtree(file) if file.is_dir() else file.unlink()
    with pytest.raises(CheckpointError) as caught:
        assert open_checkpoint(str(managed)).tree
    assert caught.value.problems[0].what == f"'{item}' holds no tree"


@pytest.mark.parametrize("name", ["manifest.ocdbt", "_METADATA", "_sharding"])
def test_git_lfs_pointers_in_a_checkpoint_are_named(tmp_path: Path, name: str) -> None:
    shutil.copytree(FLAT, tmp_path / "c")
    (tmp_path / "c" / name).write_bytes(POINTER)
    error = _refused(tmp_path / "c")
    assert f"'{tmp_path / 'c' / name}' is a Git-LFS pointer" in error.problems[0].what
    assert "git lfs pull" in error.problems[0].fix


def test_git_lfs_pointers_in_place_of_data_files_are_named(tmp_path: Path) -> None:
    shutil.copytree(FLAT, tmp_path / "c")
    data = next((tmp_path / "c" / "ocdbt.process_0" / "d").iterdir())
    data.write_bytes(POINTER)
    assert str(data) in _refused(tmp_path / "c").problems[0].what


@pytest.mark.parametrize(
    "name",
    [
        "7.orbax-checkpoint-tmp",
        "7.orbax-checkpoint-tmp-1795167049873362",
        "7.orbax-checkpoint-tmp-60",
        "run.partial_save",
        "run.partial_save.orbax-checkpoint-tmp",
    ],
)
def test_an_unfinished_save_is_refused_whatever_it_holds(tmp_path: Path, name: str) -> None:
    shutil.copytree(FLAT, tmp_path / name / "state")
    for path in (tmp_path / name, tmp_path / name / "state"):
        assert "is an unfinished save" in _refused(path).problems[0].what


def test_what_an_interrupted_run_of_surgery_left_is_named(tmp_path: Path) -> None:
    shutil.copytree(FLAT, tmp_path / ".out.surgery-tmp-x1y2")
    error = _refused(tmp_path / ".out.surgery-tmp-x1y2")
    assert "interrupted run of surgery" in error.problems[0].what
    assert error.exit_code == 3


def test_a_destination_that_was_set_aside_is_named_and_brought_back(tmp_path: Path) -> None:
    old = tmp_path / "out.surgery-old"
    shutil.copytree(FLAT, old)
    assert _refused(old).problems[0].fix == f"`mv '{old}' '{tmp_path / 'out'}'` brings it back"
    missing = _refused(tmp_path / "out")
    assert "'out.surgery-old' is" in missing.problems[0].what
    assert missing.exit_code == 3


def test_leftovers_beside_steps_are_neither_steps_nor_foreign(tmp_path: Path) -> None:
    shutil.copytree(FLAT, tmp_path / "1" / "default")
    for name in (".2.surgery-tmp-x1", "3.surgery-old", "4.orbax-checkpoint-tmp"):
        shutil.copytree(FLAT, tmp_path / name / "default")
    location = locate(str(tmp_path))
    assert location.steps == [1]
    assert location.foreign == []


def test_an_interrupted_deletion_is_refused_and_skipped(tmp_path: Path) -> None:
    for step in ("1", "2"):
        shutil.copytree(FLAT, tmp_path / step / "state")
    (tmp_path / "2" / "_CHECKPOINT_DELETION").write_text("{}")
    assert locate(str(tmp_path)).step == 1
    for path in (tmp_path / "2", tmp_path / "2" / "state"):
        assert "was interrupted" in _refused(path).problems[0].what


def test_a_missing_path_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "run_big").mkdir()
    error = _refused(tmp_path / "run_bog" / "1000")
    assert error.exit_code == 2
    assert isinstance(error, PlanError)
    assert f"'{tmp_path}' is the last part" in error.problems[0].why
    assert error.problems[0].fix == f"near it: '{tmp_path / 'run_big'}'"


def test_a_save_that_was_never_finished_is_named_under_the_name_it_would_have_had(
    tmp_path: Path,
) -> None:
    (tmp_path / "best.orbax-checkpoint-tmp-17").mkdir()
    error = _refused(tmp_path / "best")
    assert "was never finished" in error.problems[0].what
    assert isinstance(error, CheckpointError)


def test_a_link_that_leads_nowhere_is_missing(tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to(tmp_path / "gone")
    assert f"'{tmp_path / 'gone'}' does not exist" in _refused(tmp_path / "latest").problems[0].what


def test_flax_files_of_several_hosts_are_named(tmp_path: Path) -> None:
    (tmp_path / "checkpoint_3").write_bytes(b"\x81\xa1w\x01")
    (tmp_path / "checkpoint_3_gda").mkdir()
    assert "several hosts" in _refused(tmp_path / "checkpoint_3").problems[0].what


def test_a_directory_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    shutil.copytree(FLAT, tmp_path / "c")
    (tmp_path / "c" / "_METADATA").unlink()
    (tmp_path / "c" / "_METADATA").symlink_to(tmp_path / "gone")
    assert "cannot be read" in _refused(tmp_path / "c").problems[0].what


def test_a_directory_with_a_flax_file_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "flax_model.msgpack").write_bytes(b"\x81\xa1w\x01")
    path = tmp_path / "flax_model.msgpack"
    assert _refused(tmp_path).problems[0].fix == f"name '{path}'"
    assert locate(str(path)).shape == "file"
