"""A clone without its large files: whatever stands there as a Git-LFS pointer is called that."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from surgery_cli import surgery
from surgery_cli.errors import CheckpointError
from surgery_cli.operations.rescale import Rescale
from surgery_cli.planning import plan_of

SAMPLES = Path(__file__).resolve().parents[2] / "sample_checkpoints"
POINTER = (
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
    "size 12345\n"
)
UNREAD = {
    ("digits_manager", "500/commit_success.txt"),
    ("digits_manager", "500/metrics/commit_success.txt"),
    ("digits_manager", "500/metrics/metrics"),
    ("digits_v1", "commit_success.txt"),
}
FILES = [
    (name, str(file.relative_to(SAMPLES / name)))
    for name in ("digits_manager", "digits_standard", "digits_v1")
    for file in sorted((SAMPLES / name).rglob("*"))
    if file.is_file() and "250" not in file.parts
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("name", "file"), FILES)
def test_a_pointer_in_place_of_any_file_is_said_or_does_not_matter(tmp_path, name, file):
    whole = Path(shutil.copytree(SAMPLES / name, tmp_path / name))
    (whole / file).write_text(POINTER)
    paths = [row.path for row in surgery.inspect(str(SAMPLES / name)).leaves]
    at = next(path for path in paths if path.endswith("Dense_0/kernel"))
    plan = plan_of([Rescale(at=at, by=2)], optimizer="keep")
    if (name, file) in UNREAD:
        surgery.apply(str(whole), str(tmp_path / "new"), plan)
        return
    with pytest.raises(
        CheckpointError, match="is a Git-LFS pointer, not the file itself"
    ) as caught:
        surgery.apply(str(whole), str(tmp_path / "new"), plan)
    assert file in caught.value.problems[0].what
    assert not (tmp_path / "new").exists()


def test_a_shard_of_safetensors_that_is_a_pointer_is_said(tmp_path):
    save_file({"a": np.ones(3, np.float32)}, tmp_path / "model-00001-of-00002.safetensors")
    (tmp_path / "model-00002-of-00002.safetensors").write_text(POINTER)
    with pytest.raises(CheckpointError, match=r"00002-of-00002\.safetensors' is a Git-LFS pointer"):
        surgery.inspect(str(tmp_path))
