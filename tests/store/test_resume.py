"""A run that was begun with `--resume` goes on from where it was cut short, and nobody can tell from the result."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp
import pytest

HERE = Path(__file__).parent
RANDOM = np.random.default_rng(3)
TREE = {
    "params": {
        "a": RANDOM.normal(size=(64, 64)).astype(np.float32),
        "b": RANDOM.normal(size=(32, 64)).astype(np.float32),
        "c": RANDOM.normal(size=(40,)).astype(np.float32),
    },
    "other": np.arange(6, dtype=np.int32),
}
LAYOUTS = {
    "ocdbt": {},
    "zarr3": {"use_zarr3": True},
    "leaves": {"use_ocdbt": False},
    "leaves-zarr3": {"use_ocdbt": False, "use_zarr3": True},
}


class Runs:
    """Commands in forks of a process that has imported everything."""

    def __enter__(self):
        paths = os.pathsep.join([str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")])
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "cut_runs.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": paths},
            text=True,
        )
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def __call__(self, *args, cut=None):
        asked = {"args": [str(arg) for arg in args], "cut": cut}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


@pytest.fixture(scope="module")
def run():
    with Runs() as runs:
        yield runs


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Checkpoints by layout, in chunks of 16 rows."""
    folder = tmp_path_factory.mktemp("sources")
    chunks = ocp.SaveArgs(chunk_byte_size=4096)
    for name, how in LAYOUTS.items():
        with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(**how)) as checkpointer:
            saved = {"params": dict.fromkeys(TREE["params"], chunks), "other": chunks}
            checkpointer.save(folder / name, args=ocp.args.PyTreeSave(TREE, save_args=saved))
    return folder


def command(source, new, *more):
    edit = ("rescale", source, new, "params", "--by", "2", "--optimizer", "keep")
    return (*edit, "--quiet", "--resume", *more)


def restored(path):
    with ocp.PyTreeCheckpointer() as checkpointer:
        return checkpointer.restore(path)


def check(path, factor=2):
    tree = restored(path)
    for name, values in TREE["params"].items():
        np.testing.assert_array_equal(tree["params"][name], values * np.float32(factor))
    np.testing.assert_array_equal(tree["other"], TREE["other"])


def side_files(path):
    """Everything that readers see beside tensor bytes; of the record, all but when it was written, and its digest."""
    found = {}
    for file in sorted(p for p in path.rglob("*") if p.is_file()):
        name = str(file.relative_to(path))
        if "/d/" in f"/{name}" or name.endswith("manifest.ocdbt"):
            continue
        content = file.read_bytes()
        if name.endswith("surgery.json"):
            content = {**json.loads(content), "written": None, "content": None}
        found[name] = content
    return found


def left_in(folder):
    return sorted(p.name for p in folder.iterdir() if ".surgery-" in p.name)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("cut", [("entry", 3), ("entry+", 5), ("entry", 7)], ids=str)
def test_what_was_killed_goes_on_and_nobody_can_tell(run, sources, tmp_path, layout, cut):
    source, new = sources / layout, tmp_path / "new"
    whole = run(*command(source, tmp_path / "whole"))
    assert (whole["code"], whole["said"]) == (0, "")
    assert run(*command(source, new), cut=[*cut, "SIGKILL"])["code"] == -9
    assert not new.exists()
    assert len(left_in(tmp_path)) == 1
    went_on = run(*command(source, new, "--json"))
    assert went_on["code"] == 0, went_on["said"]
    assert (json.loads(went_on["said"])["taken_up_bytes"] > 0) == (cut[1] > 3)
    check(new)
    assert side_files(new) == side_files(tmp_path / "whole")
    assert left_in(tmp_path) == []
