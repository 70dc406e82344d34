"""The list of digests that a seal gives is one that `sha256sum` writes and checks."""

import os
import shutil
import subprocess

import flax.serialization
import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import DestinationError, PlanError
from tests.cli.conftest import surgery as command  # noqa: F401 - a fixture

pytestmark = pytest.mark.skipif(shutil.which("sha256sum") is None, reason="no coreutils here")

ODD_NAMES = ("new\nline", "back\\slash", "\\n", "-c", "*star", " space ", "ü", "cr\rin", "two\\\n")


@pytest.fixture
def flat(tmp_path):
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "flat", {"w": np.arange(4, dtype=np.float32), "s": "hi"})
    (tmp_path / "flat/commit_success.txt").touch()  # older Orbax puts none on a disk
    return tmp_path / "flat"


def checked(folder, sums):
    """What the real `sha256sum -c` says, run in the folder."""
    line = ["sha256sum", "--check", "--strict", str(sums)]
    return subprocess.run(line, cwd=folder, capture_output=True, check=False)


def written_by_coreutils(folder):
    names = sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())
    line = ["sha256sum", "--", *names]
    return subprocess.run(line, cwd=folder, capture_output=True, check=True).stdout


def test_sha256sum_writes_the_same_list_and_finds_every_change(flat, tmp_path, command):  # noqa: F811
    for name in ODD_NAMES:
        (flat / name).write_text(name)
    (flat / os.fsdecode(b"latin\xe9")).write_bytes(b"bytes")
    sums = tmp_path / "SHA256SUMS"

    said = command("seal", flat, "--sha256sums", sums)

    assert f"`sha256sum -c {sums}` holds the files against it, run in {flat}" in said.out
    ours, theirs = sums.read_bytes(), written_by_coreutils(flat)
    assert sorted(ours.splitlines()) == sorted(theirs.splitlines())
    assert b"surgery.json" in ours
    assert checked(flat, sums).returncode == 0
    verdict = surgery.verify(str(flat), like_manifest=sums)
    assert (verdict.agrees, verdict.files_checked) == (True, ours.count(b"  "))
    for name in ("new\nline", "_METADATA", "surgery.json"):
        before = (flat / name).read_bytes()
        (flat / name).write_bytes(before + b" ")
        assert checked(flat, sums).returncode == 1
        found = surgery.verify(str(flat), like_manifest=sums).findings
        assert [(f.path, f.what) for f in found if f.what != "metadata"] == [(name, "file changed")]
        (flat / name).write_bytes(before)


def test_a_list_by_another_program_is_a_manifest_of_files(flat, tmp_path):
    sums = tmp_path / "sums"
    find = "find . -type f -exec sha256sum --binary {} +"
    listed = subprocess.run(["sh", "-c", find], cwd=flat, capture_output=True, check=True).stdout
    sums.write_bytes(listed)
    assert surgery.verify(str(flat), like_manifest=sums).agrees
    (flat / "commit_success.txt").unlink()
    found = surgery.verify(str(flat), like_manifest=sums).findings
    assert ("commit_success.txt", "file missing") in [(f.path, f.what) for f in found]


def test_a_list_in_the_style_of_bsd_is_read_too(flat, tmp_path):
    for name in (*ODD_NAMES, "a (b) = c"):
        (flat / name).write_text(name)
    every = sorted(str(file.relative_to(flat)) for file in flat.rglob("*") if file.is_file())
    sums = tmp_path / "sums"
    line = ["sha256sum", "--tag", "--", *every]
    sums.write_bytes(subprocess.run(line, cwd=flat, capture_output=True, check=True).stdout)
    assert checked(flat, sums).returncode == 0
    verdict = surgery.verify(str(flat), like_manifest=sums)
    assert (verdict.agrees, verdict.files_checked) == (True, len(every))
    (flat / "a (b) = c").write_text("other")
    found = surgery.verify(str(flat), like_manifest=sums).findings
    assert [(f.path, f.what) for f in found] == [("a (b) = c", "file changed")]


@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize("begin", ["", "./"])
def test_a_list_that_says_two_things_of_a_file_is_refused_as_sha256sum_finds_one_to_fail(
    flat, tmp_path, is_last, begin
):
    sums, true = tmp_path / "sums", written_by_coreutils(flat)
    other = b"0" * 64 + f"  {begin}_METADATA\n".encode()
    sums.write_bytes(true + other if is_last else other + true)
    assert checked(flat, sums).returncode == 1
    with pytest.raises(PlanError, match="two digests of the file '_METADATA'"):
        surgery.verify(str(flat), like_manifest=sums)

    sums.write_bytes(true + true)
    assert checked(flat, sums).returncode == 0
    assert surgery.verify(str(flat), like_manifest=sums).agrees


def test_names_count_from_the_step_of_a_run_and_from_the_folder_of_a_file(tmp_path):
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        manager.save(3, args=ocp.args.StandardSave({"w": np.ones(4)}))
    (tmp_path / "one").mkdir()
    file = tmp_path / "one/model.msgpack"
    file.write_bytes(flax.serialization.msgpack_serialize({"w": np.ones(3, "f4")}))
    for name, folder in ((tmp_path / "run", tmp_path / "run/3"), (file, file.parent)):
        sums = tmp_path / f"{name.name}.sums"
        report = surgery.seal(str(name), sha256sums=sums)
        assert report.sha256sums.folder == str(folder)
        assert checked(folder, sums).returncode == 0
        assert surgery.verify(str(name), like_manifest=sums).agrees
    assert b"  model.msgpack\n" in sums.read_bytes()


def test_a_record_elsewhere_is_not_in_the_list_and_a_bad_place_refuses_before_anything(
    flat, tmp_path
):
    surgery.seal(str(flat), to=tmp_path / "record.json", sha256sums=tmp_path / "sums")
    assert b"surgery.json" not in (tmp_path / "sums").read_bytes()
    assert checked(flat, tmp_path / "sums").returncode == 0
    for place in (flat / "SHA256SUMS", tmp_path / "sums", tmp_path / "no/where"):
        with pytest.raises(DestinationError) as caught:
            surgery.seal(str(flat), sha256sums=place)
        assert "--to" not in caught.value.problems[0].fix
    assert not (flat / "surgery.json").exists()
