"""Places that are named with `..`: the folder that the system finds there, also behind a link, and no other."""

import json
import os

import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli.store import filesystem
from tests.store.cutting import Runs

TREE = {"params": {name: np.arange(4096, dtype=np.float32) for name in "abcd"}}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Commands in a folder that is a run by itself, to whose neighbours `..` leads."""
    inside = tmp_path / "run"
    for place in (inside / "5", tmp_path / "source"):
        with ocp.PyTreeCheckpointer() as checkpointer:
            checkpointer.save(place, TREE)
    monkeypatch.chdir(inside)
    with Runs() as runs:
        yield runs


def check(place, factor=2):
    with ocp.PyTreeCheckpointer() as checkpointer:
        restored = checkpointer.restore(place)
    for name, values in TREE["params"].items():
        np.testing.assert_array_equal(restored["params"][name], values * np.float32(factor))


@pytest.mark.parametrize("resume", [(), ("--resume",)], ids=["", "resume"])
def test_a_result_is_where_the_system_finds_it(run, tmp_path, resume):
    ended = run("rescale", "../source", "../new", "params", "--by", "2", "--quiet", *resume)
    assert ended["code"] == 0, ended
    check(tmp_path / "new")
    assert run("verify", "../new", "--quiet")["code"] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "run", "source"]


@pytest.mark.parametrize("spelling", ["../new", "./../run/../new", "link/../new"])
def test_a_killed_run_is_gone_on_from(run, tmp_path, spelling):
    """What it keeps was named with the `..` that TensorStore takes for no path."""
    (tmp_path / "run" / "link").symlink_to(tmp_path / "source")
    words = ["rescale", "../source", spelling, "params", "--by", "2", "--quiet", "--resume"]
    assert run(*words, cut=["entry+", 4, "SIGKILL"])["code"] == -9
    ended = run(*words, "--json")
    assert ended["code"] == 0, ended
    assert json.loads(ended["said"])["taken_up_bytes"] > 0
    check(tmp_path / "new")
    assert run(*words) == {"code": 0, "said": "", "counted": 0}


def test_what_is_kept_is_removed(run, tmp_path):
    words = ["rescale", "../source", "../new", "params", "--by", "2", "--quiet", "--resume"]
    assert run(*words, cut=["entry+", 4, "SIGKILL"])["code"] == -9
    assert run("clean", "../new", "--quiet")["code"] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "source"]


def test_behind_a_link_it_is_the_folder_that_the_link_leads_to(run, tmp_path):
    """By the text alone it would be the folder that the link stands in: the result would be elsewhere than it says."""
    there = tmp_path / "elsewhere" / "deep"
    there.mkdir(parents=True)
    (tmp_path / "run" / "link").symlink_to(there)
    for words in (
        ("rescale", "../source", "link/../new", "params", "--by", "2"),
        ("seal", "../source", "--to", "link/../digests.json"),
        ("export", "../source", "link/../out.npz", "params", "--to", "npz"),
    ):
        ended = run(*words, "--quiet")
        assert ended["code"] == 0, ended
    found = sorted(path.name for path in (tmp_path / "elsewhere").iterdir())
    assert found == ["deep", "digests.json", "new", "out.npz", "out.npz.surgery.json"]
    check(tmp_path / "elsewhere" / "new")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["5", "link"]


@pytest.mark.parametrize(
    "text", ["a/../b", "link/../b", "../x/./y", "link/b", ".", "..", "link/.."]
)
def test_a_place_is_the_one_that_the_system_opens(tmp_path, monkeypatch, text):
    (tmp_path / "here" / "a").mkdir(parents=True)
    (tmp_path / "there" / "deep").mkdir(parents=True)
    (tmp_path / "here" / "link").symlink_to(tmp_path / "there" / "deep")
    monkeypatch.chdir(tmp_path / "here")
    found = filesystem.absolute(type(tmp_path)(text))
    assert os.path.realpath(found) == os.path.realpath(text)
    assert found.is_absolute()
    assert ".." not in found.parts
    assert found.name == "b" or "b" not in text
