"""What is put into a step in a bucket as an item of it has a mark of its own; the step's is no business of the run."""

import itertools
import json
import shutil

import numpy as np
import orbax.checkpoint as ocp
import pytest
from etils import epath

from tests.buckets.checkpoints import MARK, SAMPLES, TREE, saved, uploaded
from tests.buckets.test_destinations import downloaded
from tests.buckets.test_refused_for_good import refusing_after

LOCK = "run/250/.extra.surgery-tmp-lock"


@pytest.fixture
def step(service):
    return uploaded(service, SAMPLES / "digits_manager" / "250", f"{service.root}/run/250")


@pytest.fixture
def source(service, tmp_path):
    return uploaded(service, saved(tmp_path / "ck"), f"{service.root}/ck")


def edit(source, step, *options):
    return ["rescale", source, f"{step}/extra", "params/w", "--by", "2", *options]


@pytest.mark.parametrize("way", [[], ["--resume"]], ids=["plain", "resume"])
@pytest.mark.parametrize("is_finished", [True, False], ids=["finished", "unfinished"])
def test_the_mark_of_the_step_stays_as_it_was(
    service, source, step, surgery, tmp_path, way, is_finished
):
    """Of a save of Orbax that was interrupted nobody else says that it is finished."""
    if not is_finished:
        service.remove(f"run/250/{MARK}")
    before = {name: service.content(name) for name in service.names("run/")}

    done = surgery(*edit(source, step, *way))

    assert done.code == 0, done.err
    after = {name: service.content(name) for name in service.names("run/")}
    assert {name: after.get(name) for name in before} == before
    assert set(after) - set(before) == {n for n in after if n.startswith("run/250/extra/")}
    assert f"run/250/extra/{MARK}" in after
    if is_finished:
        assert surgery("verify", step, "--item", "extra").code == 0
        with ocp.PyTreeCheckpointer() as checkpointer:
            tree = checkpointer.restore(downloaded(service, "run/250/extra", tmp_path / "down"))
        np.testing.assert_array_equal(tree["params"]["w"], TREE["params"]["w"] * 2)
    elif service.root.startswith("gs://"):  # where Orbax asks for one
        refused = surgery("inspect", step)
        assert refused.code == 3
        assert "is an unfinished save" in refused.err


@pytest.mark.sampled(1)
@pytest.mark.parametrize("way", [[], ["--resume"]], ids=["plain", "resume"])
def test_what_a_killed_run_put_into_it_goes_whole(service, source, step, surgery, monkeypatch, way):
    """The step's mark does not say that the run had done all but remove its lock; until it has, nothing is read."""
    before = service.names()
    for number in itertools.count(5, 7):
        with monkeypatch.context() as patched:
            refusing_after(service, number, patched)
            ended = surgery(*edit(source, step, *way))
        if ended.code == 0:
            break
        if LOCK not in service.names():
            assert service.names() == before
            continue
        told = json.loads(service.content(LOCK)) | {"pid": 2**22 - 1, "started": "1"}
        service.put("bkt", LOCK, json.dumps(told).encode())
        is_whole = f"run/250/extra/{MARK}" in service.names()
        looked = surgery("inspect", f"{step}/extra")
        assert looked.code in ([0] if is_whole else [2, 3]), looked.err
        assert surgery("clean", f"{step}/extra").code == 0
        assert is_whole or service.names() == before
        for name in set(service.names()) - set(before):
            service.remove(name)
    assert number > 20


@pytest.mark.sampled(1)
def test_what_is_on_record_of_the_step_and_of_the_item_is_found_of_both(
    service, step, source, surgery
):
    assert surgery("rescale", step, f"{service.root}/new/250", "params/**", "--by", "2").code == 0
    assert surgery(*edit(source, f"{service.root}/new/250")).code == 0
    whole = surgery("verify", f"{service.root}/new/250", "--json").document
    item = surgery("verify", f"{service.root}/new/250/extra", "--json").document
    own = {f"extra/{path}" for path in item["agreeing"]}
    assert own
    assert own < set(whole["agreeing"])
    assert any(path.startswith("default/params/") for path in whole["agreeing"])
    assert not whole["findings"]
    entries = surgery("log", f"{service.root}/new/250", "--json").document["entries"]
    assert [entry["items"] for entry in entries] == [["extra"], ["default"]]


def restored_by_itself(address):
    with ocp.PyTreeCheckpointer() as checkpointer:
        return checkpointer.restore(epath.Path(address))


@pytest.mark.parametrize("source", ["in the bucket", "on this disk"])
def test_an_item_without_a_mark_is_told_of_and_the_result_has_one(
    bucket, surgery, tmp_path, source
):
    """Orbax restores it with its step, and not by its own address."""
    run = "gs://bkt/run"
    if source == "in the bucket":
        uploaded(bucket, SAMPLES / "digits_manager", run)
        bucket.remove(f"run/250/default/{MARK}")
        with pytest.raises(ValueError, match="incomplete"):
            restored_by_itself(f"{run}/250/default")
        for place in (f"{run}@250", f"{run}/250/default"):
            said = surgery("verify", place)
            assert said.code == 0
            assert f"of 'default' there is no `{MARK}`" in said.out
            looked = surgery("inspect", place, "--json")
            assert any(f"of 'default' there is no `{MARK}`" in n for n in looked.document["notes"])
        with ocp.CheckpointManager(epath.Path(run)) as manager:
            assert manager.restore(250) is not None
        assert MARK in surgery("doctor", run, "--settled", "0").out
        sound = surgery("verify", f"{run}@500").out
        assert MARK not in sound
        step = f"{run}/250"
    else:
        step = shutil.copytree(SAMPLES / "digits_manager" / "250", tmp_path / "250")
        for mark in step.rglob(MARK):
            mark.unlink()
    edit = ("params/Dense_1", "--by", "2", "--optimizer", "keep")
    told = surgery("rescale", step, f"{run}-new/250", *edit, "--dry-run", "--json")
    wrote = surgery("rescale", step, f"{run}-new/250", *edit, "--json")
    assert (told.code, wrote.code) == (0, 0)
    for report in (told, wrote):
        notes = [note for note in report.document["notes"] if "of 'default' there is no" in note]
        assert len(notes) == (source == "in the bucket")
    restored_by_itself(f"{run}-new/250/default")
    metrics = f"run-new/250/metrics/{MARK}"
    assert (metrics in bucket.names()) == bool(bucket.names("run-new/250/metrics"))
    assert MARK not in surgery("verify", f"{run}-new/250").out


@pytest.mark.parametrize("step", [250, 700], ids=["an unfinished one", "a new one"])
def test_an_item_of_a_step_without_a_mark_says_that_this_is_unfinished(bucket, surgery, step):
    """Items may come one by one, and the step is whole once its own mark says so."""
    run = uploaded(bucket, SAMPLES / "digits_manager", "gs://bkt/run")
    bucket.remove(f"run/250/{MARK}")
    edit = ("params/Dense_1", "--by", "2", "--optimizer", "keep")
    put = ["rescale", f"{run}/500/default", f"{run}/{step}/extra", *edit, "--json"]
    told, wrote = surgery(*put, "--dry-run"), surgery(*put)
    for said in (told, wrote):
        notes = [note for note in said.document["notes"] if f"has no `{MARK}`" in note]
        assert len(notes) == 1
        assert f"'{run}/{step}'" in notes[0]
    assert surgery("inspect", f"{run}@{step}").code == 3
    bucket.put("bkt", f"run/{step}/{MARK}", b"")
    assert surgery("verify", f"{run}@{step}", "--item", "extra").code == 0
    again = surgery("rescale", f"{run}/500/default", f"{run}/{step}/more", *edit, "--json")
    assert not [note for note in again.document["notes"] if f"has no `{MARK}`" in note]
