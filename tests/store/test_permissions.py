"""What this user may not read is named, with whose it is; what nobody needs of it is not asked for."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import orbax.checkpoint as ocp
import pytest

TREE = {
    "params": {
        "w": np.random.default_rng(0).normal(size=(300, 400)).astype("f4"),
        "b": np.ones(3, "f4"),
    }
}
WITHOUT_RIGHTS = []
"""Before a command: even a superuser then goes by what files allow."""
if os.geteuid() == 0:
    if shutil.which("setpriv") is None:
        pytest.skip("the superuser reads everything", allow_module_level=True)
    WITHOUT_RIGHTS = [
        "setpriv",
        "--bounding-set",
        "-dac_override,-dac_read_search",
        "--inh-caps",
        "-all",
    ]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    with ocp.CheckpointManager(folder / "run") as manager:
        for step in (1, 2):
            items = {"state": ocp.args.PyTreeSave(TREE), "notes": ocp.args.JsonSave({"a": 1})}
            manager.save(step, args=ocp.args.Composite(**items))
        manager.wait_until_finished()
    with ocp.PyTreeCheckpointer(use_ocdbt=False) as checkpointer:
        checkpointer.save(folder / "leaves", TREE)
    return folder


@pytest.fixture
def barred(request, saved, tmp_path):
    """A copy of the saved checkpoints in which nobody may read one file or folder."""
    shutil.copytree(saved, tmp_path / "all")
    path = tmp_path / "all" / request.param
    if "*" in request.param:  # the largest: values, not the tree of them
        path = max((tmp_path / "all").glob(request.param), key=lambda file: file.stat().st_size)
    mode = path.stat().st_mode
    path.chmod(0)
    yield path
    path.chmod(mode)


def run(folder, *arguments):
    """The exit code and what was said."""
    command = [*WITHOUT_RIGHTS, sys.executable, "-m", "surgery_cli", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("barred", "arguments"),
    [
        ("leaves", ("inspect", "leaves")),
        ("leaves/params.w/0.0", ("verify", "leaves")),
        ("leaves/params.w/0.0", ("rescale", "leaves", "new", "params/w", "--by", "2")),
        ("run/2", ("inspect", "run")),
        ("run/2/notes/metadata", ("rename", "run", "new", "params/w", "--to", "params/v")),
        ("run/2/state/ocdbt.process_0/d/*", ("verify", "run")),
    ],
    indirect=["barred"],
)  # fmt: skip
def test_what_may_not_be_read_is_named_with_its_owner(barred, arguments):
    folder = next(path for path in barred.parents if path.name == "all")
    code, said = run(folder, *arguments)
    assert code == 3, said
    first, second, _ = said.splitlines()
    assert first.endswith(f"'{barred}' cannot be read")
    assert second.startswith("  Permission denied: it belongs to ")
    assert sorted(path.name for path in folder.iterdir()) == ["leaves", "run"]


@pytest.mark.parametrize("barred", ["run/1"], indirect=True)
def test_a_step_that_nobody_may_look_into_is_named_beside_the_others(barred):
    command = [*WITHOUT_RIGHTS, sys.executable, "-m", "surgery_cli", "doctor", "run", "--json"]
    done = subprocess.run(command, cwd=barred.parents[1], capture_output=True, check=False)
    assert done.returncode == 3
    found = {place["path"]: place for place in json.loads(done.stdout)["places"]}
    assert {path: place["state"] for path, place in found.items()} == {
        "1": "unreadable",
        "2": "whole",
    }
    assert f"'{barred}' cannot be read: Permission denied" in found["1"]["why"][0]


LOOK = """
import json, sys
from surgery_cli import surgery
for root in sys.argv[1:]:
    for reads in (False, True):
        found = surgery.doctor(root, read_data=reads, settled_seconds=0)
        print(json.dumps({place.path: [place.state, *place.why] for place in found.places}))
"""
NOT_NEEDED = {"2/commit_success.txt", "2/notes/commit_success.txt", "2/state/commit_success.txt"}


def test_one_file_or_folder_that_nobody_may_read_hides_no_other_step(saved, tmp_path):
    """Each in turn: a side file ended the look at the whole run, and data that were to be read did."""
    run = saved / "run"
    names = sorted(str(path.relative_to(run)) for path in (run / "2").rglob("*"))
    for number, name in enumerate(names):
        shutil.copytree(run, tmp_path / str(number))
        (tmp_path / str(number) / name).chmod(0)
    roots = map(str, range(len(names)))
    command = [*WITHOUT_RIGHTS, sys.executable, "-c", LOOK, *roots]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    for number, name in enumerate(names):
        (tmp_path / str(number) / name).chmod(0o700)
        for found in lines[2 * number : 2 * number + 2]:
            assert found["1"] == ["whole"]
            assert found["2"][0] in ("unreadable", "whole"), (name, found)
        state, *why = found["2"]
        assert state == "unreadable" or name in NOT_NEEDED or "/d/" in name, (name, found)
        assert state == "whole" or f"/{name}' cannot be read: Permission denied" in why[0]


@pytest.mark.parametrize("barred", ["run/1", "run/2/notes"], indirect=True)
def test_what_is_not_asked_for_bars_nothing(barred):
    folder = next(path for path in barred.parents if path.name == "all")
    code, said = run(folder, "inspect", "run", "params")
    assert code == 0, said


def test_nobody_says_that_nothing_was_left_where_nobody_may_look(tmp_path):
    (tmp_path / "shut").mkdir(mode=0)
    code, said = run(tmp_path, "clean", "shut")
    assert code == 3
    assert "'shut' cannot be read" in said
    (tmp_path / "shut").chmod(0o700)
