"""The same command in several processes, which JAX brings together: one result, or one end."""

import os
import random
import signal
import time

import numpy as np
import pytest

from surgery_cli import surgery
from tests.hosts.companies import Processes, assert_same_bits, restored, saved, tree_to_cut
from tests.hosts.test_same_result import EDITS, plan, record_of

SECONDS = 2.0
"""In which a run ends after one of its processes; beside it, what a loaded machine takes."""

LOADED = 60.0


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("source") / "ck", tree_to_cut())


def cast(source, count, destination, **how):
    return Processes(count, "cast", source, destination, "params", "--to", "bfloat16", **how)


def wait_for(what, seconds=300):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.check_all)])
def test_the_result_is_that_of_one_process(source, tmp_path, count):
    surgery.apply(str(source), str(tmp_path / "one"), plan(EDITS["cast"]))
    ended = cast(source, count, tmp_path / "many").ended()
    assert [each.code for each in ended] == [0] * count, ended
    assert "verified" in ended[0].out
    assert all((each.out, each.err) == ("", "") for each in ended[1:])
    assert_same_bits(restored(tmp_path / "many"), restored(tmp_path / "one"))
    assert record_of(tmp_path / "many") == record_of(tmp_path / "one")
    assert len(list((tmp_path / "many").glob("ocdbt.process_*/d/*"))) >= count - 1


def check_end(ended, folder, killed, how):
    """Whoever was first: all is done, or nothing is."""
    others = [each for number, each in enumerate(ended) if number != killed]
    if (folder / "new").exists():
        assert ended[0].code in (0, -how)
    else:
        assert all(each.code == 143 for each in others), ended
        assert all("process" in each.err for each in others), ended
    assert all(each.seconds < SECONDS + LOADED for each in ended)
    left = {path.name for path in folder.iterdir()} - {"new"}
    if killed == 0 and how == signal.SIGKILL:
        assert all(name.startswith(".new.surgery-tmp-") for name in left)
        surgery.clean(str(folder / "new"))
        left = {path.name for path in folder.iterdir()} - {"new"}
    assert not left
    if (folder / "new").exists():
        assert surgery.verify(str(folder / "new")).agrees


def kill_one(source, folder, count, killed, delay, how=signal.SIGKILL):
    processes = cast(source, count, folder / "new")
    wait_for(lambda: any(folder.iterdir()))
    time.sleep(delay)
    processes.end(killed, how)
    check_end(processes.ended(), folder, killed, how)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("killed", "how"), [(1, signal.SIGKILL), (0, signal.SIGKILL)])
def test_one_that_is_killed_ends_the_others(source, tmp_path, killed, how):
    draw = random.Random(11 + killed)
    kill_one(source, tmp_path, 2, killed, draw.uniform(0, 0.3), how)


@pytest.mark.check_all
def test_one_that_is_asked_to_end_ends_the_others(source, tmp_path):
    kill_one(source, tmp_path, 2, 1, 0.05, signal.SIGTERM)


@pytest.mark.check_all
def test_every_process_dies_at_random_points(source, tmp_path):
    draw = random.Random(int(os.environ.get("KILL_SEED", "1")))
    for turn in range(24):
        (folder := tmp_path / str(turn)).mkdir()
        count = draw.choice([2, 4])
        how = draw.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM])
        kill_one(source, folder, count, draw.randrange(count), draw.uniform(0, 0.8), how)


def test_processes_that_are_not_about_to_do_the_same_are_refused_by_name(source, tmp_path):
    own = {1: ["--to", "float16"]}
    ended = cast(source, 2, tmp_path / "new", own=own).ended()
    assert [each.code for each in ended] == [2, 2], ended
    assert "process 1 on" in ended[0].err
    assert "its edit 1 is" in ended[0].err
    assert not list(tmp_path.iterdir())


def test_what_one_process_is_refused_ends_all_with_its_words(source, tmp_path):
    own = {1: ["--draft", "sha256:0"]}
    ended = cast(source, 2, tmp_path / "new", own=own).ended()
    assert [each.code for each in ended] == [2, 2], ended
    assert "is not the digest of a draft" in ended[1].err
    assert "process 1 of 2" in ended[0].err
    assert "is not the digest of a draft" in ended[0].err
    assert not list(tmp_path.iterdir())


def test_what_one_process_is_refused_is_told_by_all_in_the_options_that_were_typed(tmp_path):
    source = saved(tmp_path / "ck", {"w": np.ones((8, 4), np.int32)})
    ended = Processes(2, "rescale", source, tmp_path / "new", "w", "--by", "2").ended()
    for each in ended:
        assert each.code == 2, ended
        assert "`--where-dtype floating`" in each.err
        assert "`where_dtype" not in each.err
