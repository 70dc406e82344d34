"""Results in a bucket: copied by the service, written once, and whole when Orbax says so; or not there at all."""

import errno
import json
import re
import subprocess
import sys
import threading
import time

import msgspec
import numpy as np
import orbax.checkpoint as ocp
import pytest
from etils import epath
from flax.serialization import to_bytes

from surgery_cli import surgery
from surgery_cli.errors import CheckpointError, DestinationError, SurgeryError, WriteError
from surgery_cli.inputs.buckets import path_at
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.settings.run import Options
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.bucket import Buckets
from surgery_cli.store.filesystem.processes import Owner
from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.tree.paths import LeafPath
from tests.buckets.checkpoints import MARK, RESCALED, SAMPLES, TREE, saved, uploaded
from tests.buckets.server import Faults


def restored(address):
    with ocp.PyTreeCheckpointer() as checkpointer:
        return checkpointer.restore(epath.Path(address))


def check(tree, factor=2):
    np.testing.assert_array_equal(tree["params"]["w"], factor * TREE["params"]["w"])
    np.testing.assert_array_equal(tree["params"]["b"], TREE["params"]["b"])
    assert tree["opt_state"]["count"] == 3


def names(server, folder=""):
    return sorted(name for name in server.buckets["bkt"] if name.startswith(folder))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("how", [{}, {"use_ocdbt": False}, {"use_zarr3": True}], ids=str)
@pytest.mark.parametrize("compact", ["never", "always"])
def test_orbax_restores_the_result_from_the_bucket(bucket, tmp_path, how, compact):
    there = uploaded(bucket, saved(tmp_path / "ck", **how), "gs://bkt/runs/ck")
    before = {name: stored.data for name, stored in bucket.buckets["bkt"].items()}
    surgery.apply(there, "gs://bkt/runs/new", RESCALED, options=Options(compact=compact))
    check(restored("gs://bkt/runs/new"))
    kept = {name: stored.data for name, stored in bucket.buckets["bkt"].items() if name in before}
    assert kept == before
    assert not [name for name in names(bucket) if "surgery-tmp" in name]
    assert surgery.verify("gs://bkt/runs/new").agrees


def test_untouched_objects_are_copied_by_the_service(bucket, tmp_path):
    large = np.random.default_rng(0).standard_normal((1 << 20,)).astype(np.float32)
    tree = {"params": {"w": TREE["params"]["w"], "large": large}}
    there = uploaded(bucket, saved(tmp_path / "ck", tree), "gs://bkt/ck")
    bucket.log.clear()
    surgery.apply(there, "gs://bkt/new", RESCALED)
    sent = sum(request.sent for request in bucket.log)
    received = sum(len(request.body) for request in bucket.log)
    assert sent + received < 200_000
    assert bucket.kinds()["copy"] >= 1
    np.testing.assert_array_equal(
        open_checkpoint("gs://bkt/new").read(LeafPath(("params", "large"))), large
    )


def test_the_mark_is_written_last(bucket, tmp_path):
    there = uploaded(bucket, SAMPLES / "digits_manager", "gs://bkt/runs/digits")
    bucket.log.clear()
    plan = plan_of([operation_from_options("rescale", {"at": "params/Dense_1/bias", "by": 2.0})])
    surgery.apply(there, "gs://bkt/runs/new", plan)
    changing = [r for r in bucket.log if r.kind in ("write", "copy", "delete")]
    described = [(r, f"{r.path}{r.query}{r.body[:400]}") for r in changing]
    ours = [r for r, text in described if MARK in text or "surgery-tmp-lock" not in text]
    last = ours[-1]
    assert last.kind == "copy"  # of the lock
    assert MARK in last.path
    with ocp.CheckpointManager(epath.Path("gs://bkt/runs/new")) as manager:
        assert manager.all_steps() == [500]


def test_from_this_disk_and_from_one_bucket_to_another(bucket, tmp_path):
    bucket.buckets["other"] = {}
    here = saved(tmp_path / "ck")
    surgery.apply(str(here), "gs://bkt/new", RESCALED)
    check(restored("gs://bkt/new"))
    surgery.apply("gs://bkt/new", "gs://other/new", RESCALED)
    check(restored("gs://other/new"), factor=4)


def test_what_fails_leaves_nothing(bucket, tmp_path):
    there = uploaded(bucket, saved(tmp_path / "ck"), "gs://bkt/ck")
    before = names(bucket)
    refused = plan_of([operation_from_options("cast", {"at": "params/w", "to": "float8_e4m3fn"})])
    huge = plan_of(
        [operation_from_options("rescale", {"at": "params/w", "by": 1e38}), *refused.edits]
    )
    with pytest.raises(SurgeryError):
        surgery.apply(there, "gs://bkt/new", huge)
    assert names(bucket) == before


def test_what_stands_there_is_not_overwritten_unless_that_is_asked_for(bucket, tmp_path):
    there = uploaded(bucket, saved(tmp_path / "ck"), "gs://bkt/ck")
    surgery.apply(there, "gs://bkt/new", RESCALED)
    with pytest.raises(DestinationError, match="exists"):
        surgery.apply(there, "gs://bkt/new", RESCALED)
    with pytest.raises(DestinationError, match="is the source itself"):
        surgery.apply(there, there, RESCALED, options=Options(force=True))
    surgery.apply("gs://bkt/new", "gs://bkt/newer", RESCALED)
    surgery.apply("gs://bkt/newer", "gs://bkt/new", RESCALED, options=Options(force=True))
    check(restored("gs://bkt/new"), factor=8)
    assert {name.split("/")[0] for name in names(bucket)} == {"ck", "new", "newer"}


def test_force_never_leaves_neither(bucket, tmp_path, monkeypatch):
    there = uploaded(bucket, saved(tmp_path / "ck"), "gs://bkt/ck")
    surgery.apply(there, "gs://bkt/old", RESCALED)
    whole = bucket._copy

    def failing(request, name, source, into, target):
        if target.startswith("old/") and "manifest" in target:
            bucket.buckets["bkt"].pop(source)  # as if somebody removed it meanwhile
        return whole(request, name, source, into, target)

    monkeypatch.setattr(bucket, "_copy", failing)
    with pytest.raises(WriteError) as failed:
        surgery.apply(there, "gs://bkt/old", RESCALED, options=Options(force=True))
    (problem,) = failed.value.problems
    assert problem.what == "'gs://bkt/old' could not be replaced whole"
    assert "the new one stands whole in 'gs://bkt/.old.surgery-tmp-" in problem.why
    assert re.search(r"`surgery rescue gs://bkt/\.old\.surgery-tmp-\w{8}/old NEW`", problem.fix)
    assert f"old/{MARK}" not in names(bucket)


@pytest.mark.parametrize("fails", ["old.msgpack", ".old.msgpack.surgery.json"])
def test_no_record_tells_of_values_that_are_not_its_own(bucket, tmp_path, monkeypatch, fails):
    """A file and its record are two objects: whatever comes between them, the old one's record is gone by then."""
    (tmp_path / "ck").write_bytes(to_bytes({"params": {"w": np.ones(4, np.float32)}}))
    there = bucket.upload(tmp_path / "ck", "gs://bkt/ck.msgpack")
    surgery.apply(there, "gs://bkt/old.msgpack", RESCALED)
    assert ".old.msgpack.surgery.json" in names(bucket)
    _failing_copy(monkeypatch, lambda target: target.endswith(f"bkt/{fails}"))
    with pytest.raises(WriteError, match="could not be replaced whole"):
        surgery.apply(there, "gs://bkt/old.msgpack", RESCALED, options=Options(force=True))
    assert "old.msgpack" in names(bucket)
    assert ".old.msgpack.surgery.json" not in names(bucket)


def test_where_a_run_can_go_on_nothing_else_is_advised(bucket, tmp_path, monkeypatch):
    there = uploaded(bucket, saved(tmp_path / "ck"), "gs://bkt/ck")
    surgery.apply(there, "gs://bkt/old", RESCALED)
    options = Options(force=True, resume=True)
    with monkeypatch.context() as patched:
        _failing_copy(patched, lambda target: target.endswith("bkt/old/surgery.json"))
        with pytest.raises(WriteError) as failed:
            surgery.apply(there, "gs://bkt/old", RESCALED, options=options)
    (problem,) = failed.value.problems
    assert "the new one stands whole in 'gs://bkt/.old.surgery-tmp-" in problem.why
    assert not re.search("rescue|clean|remove", problem.fix)
    lock = ".old.surgery-tmp-lock"  # of a process that is over
    told = json.loads(bucket.content(lock)) | {"pid": 2**22 - 1, "started": "1"}
    bucket.put("bkt", lock, json.dumps(told).encode())
    with pytest.raises(CheckpointError, match="half replaced") as refused:
        surgery.verify("gs://bkt/old")
    assert "goes on from there" in refused.value.problems[0].fix
    trebled = plan_of([operation_from_options("rescale", {"at": "params/w", "by": 3.0})])
    with pytest.raises(
        SurgeryError
    ) as another:  # of another draft, which has no use for what is kept
        surgery.apply(there, "gs://bkt/old", trebled, options=options)
    looked = [one for one in surgery.doctor("gs://bkt").places if one.path != "ck"]
    assert "old" in [one.path for one in looked]
    for said in (another.value.problems[0].fix, *(one.todo for one in looked)):
        assert "goes on from there" in said
        assert "`surgery clean gs://bkt/old` puts the new one in its place" in said
        assert "or `surgery rescue gs://bkt/.old.surgery-tmp-" in said
    surgery.apply(there, "gs://bkt/old", RESCALED, options=options)
    check(restored("gs://bkt/old"), factor=2)
    assert not [name for name in names(bucket) if "surgery-tmp" in name]


def _failing_copy(monkeypatch, is_meant):
    whole = Buckets.copy

    def copy(self, source, target):
        if is_meant(str(target)):
            raise OSError(errno.EIO, "no answer")
        whole(self, source, target)

    monkeypatch.setattr(Buckets, "copy", copy)


def test_of_two_runs_to_one_place_one_wins(bucket, tmp_path):
    there = uploaded(bucket, saved(tmp_path / "ck"), "gs://bkt/ck")
    ended = []

    def run(factor):
        plan = plan_of([operation_from_options("rescale", {"at": "params/w", "by": factor})])
        try:
            surgery.apply(there, "gs://bkt/new", plan)
            ended.append(factor)
        except DestinationError as error:
            ended.append(error)

    bucket.faults = Faults(latency=0.005)
    runs = [threading.Thread(target=run, args=(factor,)) for factor in (2.0, 3.0)]
    for thread in runs:
        thread.start()
    for thread in runs:
        thread.join()
    (won,) = [end for end in ended if isinstance(end, float)]
    (lost,) = [end for end in ended if not isinstance(end, float)]
    assert "another run" in str(lost) or "exists" in str(lost)
    bucket.faults = Faults()
    check(restored("gs://bkt/new"), factor=won)


@pytest.mark.parametrize(
    ("owner", "what", "why", "fix"),
    [
        (
            "living",
            "another run is writing to",
            "on this machine",
            "wait for it, or end it (`kill ",
        ),
        (
            "dead",
            "was left by a run that was killed",
            "which is gone",
            "`surgery clean gs://bkt/new` ",
        ),
        ("elsewhere", "another run is writing to", "process 7 on 'tpu-vm-3'", "--stale` removes"),
        ("unknown", "another run is writing to", "somebody has made", "--stale` removes"),
    ],
)
def test_a_lock_that_stands_is_named(bucket, tmp_path, owner, what, why, fix):
    there = uploaded(bucket, saved(tmp_path / "ck"), "gs://bkt/ck")
    said = {
        "living": msgspec.to_builtins(Owner.here()),
        "dead": {**msgspec.to_builtins(Owner.here()), "started": "1"},
        "elsewhere": {"host": "tpu-vm-3", "machine": "01234567", "pid": 7, "started": "1"},
        "unknown": {"hello": "there"},
    }[owner]
    bucket.put("bkt", ".new.surgery-tmp-lock", json.dumps(said).encode())
    before = names(bucket)
    with pytest.raises(DestinationError) as refused:
        surgery.apply(there, "gs://bkt/new", RESCALED)
    (problem,) = refused.value.problems
    assert what in problem.what
    assert why in problem.why
    assert fix in problem.fix
    assert "{" not in problem.why  # no document as it lies there
    assert names(bucket) == before
    bucket.put("bkt", "new/_METADATA", b"{}")
    with pytest.raises(CheckpointError, match=what):
        open_checkpoint("gs://bkt/new")


@pytest.mark.sampled(12)
@pytest.mark.parametrize("kind", ["503", "reset", "lost", "cut"])
def test_faults_change_no_result(bucket, tmp_path, kind):
    there = uploaded(bucket, saved(tmp_path / "ck"), "gs://bkt/ck")
    bucket.faults = Faults(kind, every=6)
    surgery.apply(there, "gs://bkt/new", RESCALED)
    bucket.faults = Faults()
    check(restored("gs://bkt/new"))
    assert not [name for name in names(bucket) if "surgery-tmp" in name]


def test_what_a_killed_run_left_is_named_with_the_command_that_removes_it(bucket, tmp_path):
    there = uploaded(bucket, saved(tmp_path / "ck"), "gs://bkt/ck")
    bucket.put("bkt", ".new.surgery-tmp-lock", b"{}")
    bucket.put("bkt", "new/_METADATA", b"{}")
    with pytest.raises(DestinationError) as refused:
        surgery.apply(there, "gs://bkt/new", RESCALED)
    (problem,) = refused.value.problems
    assert problem.what == "another run is writing to 'gs://bkt/new'"
    assert "`surgery clean gs://bkt/new --stale`" in problem.fix
    del bucket.buckets["bkt"][".new.surgery-tmp-lock"]
    with pytest.raises(DestinationError) as refused:
        surgery.apply(there, "gs://bkt/new", RESCALED, options=Options(force=True))
    assert "remove it first: `gcloud storage rm -r gs://bkt/new`" in refused.value.problems[0].fix
    for whole in ("gs://bkt", "gs://bkt@3"):
        with pytest.raises(DestinationError, match="is a whole bucket") as refused:
            surgery.apply(there, whole, RESCALED)
        assert refused.value.problems[0].fix == "e.g. `gs://bkt/runs/new`"


def test_a_sealed_result_agrees_with_its_seal_mark_and_all(bucket, tmp_path):
    there = uploaded(bucket, SAMPLES / "digits_manager", "gs://bkt/runs/digits")
    plan = plan_of([operation_from_options("rescale", {"at": "params/Dense_1/bias", "by": 2.0})])
    surgery.apply(there, "gs://bkt/runs/new", plan, options=Options(seal=True))
    assert surgery.verify("gs://bkt/runs/new").agrees
    bucket.put("bkt", f"runs/new/500/{MARK}", b"something else")
    assert not surgery.verify("gs://bkt/runs/new").agrees


@pytest.mark.parametrize("number", [2, 15])
def test_a_run_that_is_told_to_end_leaves_nothing(bucket, tmp_path, number):
    there = uploaded(bucket, saved(tmp_path / "ck"), "gs://bkt/ck")
    before = names(bucket)

    def is_midway(kind):
        return kind in ("write", "copy") and len(names(bucket, "new/")) >= 3

    bucket.faults = Faults(are_held=is_midway)
    command = [
        sys.executable,
        "-m",
        "surgery_cli",
        "rescale",
        there,
        "gs://bkt/new",
        "params/w",
        "--by",
        "2",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as run:
        while len(names(bucket, "new/")) < 3:
            assert run.poll() is None
            time.sleep(0.005)
        run.send_signal(number)
        said = ""
        for line in run.stderr:
            said += line
            if "what is in work now is finished first" in line:
                bucket.faults = Faults()
    bucket.faults = Faults()
    assert run.returncode == 128 + number
    assert "nothing was left behind" in said
    assert names(bucket) == before


@pytest.mark.parametrize("end", [b"", b"\r", b"\n", b"\r\n", b"--==0=="])
@pytest.mark.parametrize("size", [0, 3, 9 << 20])
def test_every_byte_is_written(bucket, end, size):
    content = bytes(size) + end
    filesystem.write(path_at("gs://bkt/x"), content)
    assert bucket.buckets["bkt"]["x"].data == content
    with pytest.raises(FileExistsError), filesystem.create(path_at("gs://bkt/x")) as file:
        file.write(b"other")
    assert bucket.buckets["bkt"]["x"].data == content


def test_what_fails_while_it_is_written_is_not_there(bucket):
    for size in (3, 9 << 20):
        pieces = (bytes(size) if number < 2 else 1 // 0 for number in range(3))
        with pytest.raises(ZeroDivisionError):
            filesystem.write(path_at("gs://bkt/x"), pieces)
        assert names(bucket) == []
