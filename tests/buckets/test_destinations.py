"""Results on `s3://` as on `gs://`: judged by TensorStore there, and by Orbax once they were copied to this disk."""

import numpy as np
import orbax.checkpoint as ocp
import pytest
import tensorstore as ts

from surgery_cli import surgery
from surgery_cli.errors import CheckpointError, DestinationError, SurgeryError, WriteError
from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.settings.run import Options
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem import bucket as buckets
from surgery_cli.store.filesystem.bucket_guard import Guard
from surgery_cli.store.open.checkpoint import open_checkpoint
from tests.buckets.checkpoints import MARK, RESCALED, SAMPLES, TREE, saved, uploaded

LAYOUTS = [{}, {"use_ocdbt": False}, {"use_zarr3": True}]


def downloaded(server, name, folder):
    """What `aws s3 cp --recursive` makes of it."""
    for key in server.names(f"{name}/"):
        file = folder / key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(server.content(key))
    return folder / name


def check(server, name, tmp_path, factor=2.0):
    with ocp.PyTreeCheckpointer() as checkpointer:
        tree = checkpointer.restore(downloaded(server, name, tmp_path / "down"))
    np.testing.assert_array_equal(tree["params"]["w"], np.float32(factor) * TREE["params"]["w"])
    np.testing.assert_array_equal(tree["params"]["b"], TREE["params"]["b"])
    assert tree["opt_state"]["count"] == 3


def read_by_tensorstore(server, name):
    """All arrays of a database there, by TensorStore's own driver."""
    base = {"driver": "s3", "bucket": "bkt", "path": f"{name}/", "endpoint": server.url}
    base |= {"aws_region": "us-east-1"}
    store = ts.KvStore.open({"driver": "ocdbt", "base": base}).result()
    names = [key.decode().rpartition("/")[0] for key in store.list().result() if b".zarray" in key]
    opened = {
        n: ts.open({"driver": "zarr"}, kvstore=store / f"{n}/", open=True).result() for n in names
    }
    return {n: array.read().result() for n, array in opened.items()}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("how", LAYOUTS, ids=str)
@pytest.mark.parametrize("compact", ["never", "always"])
def test_a_result_is_whole(s3, tmp_path, how, compact):
    there = uploaded(s3, saved(tmp_path / "ck", **how), "s3://bkt/runs/ck")
    before = {name: s3.content(name) for name in s3.names()}
    surgery.apply(there, "s3://bkt/runs/new", RESCALED, options=Options(compact=compact))
    assert {name: s3.content(name) for name in before} == before
    assert {name.split("/")[1] for name in s3.names()} == {"ck", "new"}
    assert f"runs/new/{MARK}" in s3.names()
    if not how:
        arrays = read_by_tensorstore(s3, "runs/new")
        np.testing.assert_array_equal(arrays["params.w"], 2 * TREE["params"]["w"])
        assert len(arrays) == 3
    check(s3, "runs/new", tmp_path)
    assert surgery.verify("s3://bkt/runs/new").agrees


@pytest.mark.parametrize("how", LAYOUTS, ids=str)
def test_metadata_come_after_all_data_and_the_mark_last(s3, tmp_path, how):
    there = uploaded(s3, saved(tmp_path / "ck", **how), "s3://bkt/ck")
    s3.log.clear()
    surgery.apply(there, "s3://bkt/new", RESCALED)
    written = [r.path.removeprefix("/bkt/new/") for r in s3.log if r.kind in ("copy", "write")]
    written = [name for name in written if "surgery-tmp" not in name]
    described = {"_METADATA", "_sharding", "manifest.ocdbt", "_CHECKPOINT_METADATA", "surgery.json"}
    first = min(n for n, name in enumerate(written) if name in described)
    assert not [n for n in written[first:] if n.startswith(("d/", "params", "opt_state", "ocdbt."))]
    assert written[-1] == MARK
    assert written[-2] == "surgery.json"


def test_untouched_objects_are_copied_by_the_service_in_one_request_each(s3, tmp_path):
    large = np.random.default_rng(0).standard_normal((1 << 20,)).astype(np.float32)
    tree = {"params": {"w": TREE["params"]["w"], "large": large}}
    there = uploaded(s3, saved(tmp_path / "ck", tree), "s3://bkt/ck")
    s3.log.clear()
    surgery.apply(there, "s3://bkt/new", RESCALED)
    assert sum(r.sent + len(r.body) for r in s3.log) < 200_000
    copied = [r.path for r in s3.log if r.kind == "copy"]
    assert len(copied) == len(set(copied)) >= 2
    looked_up = [r.path for r in s3.log if r.kind == "look up"]
    assert not [path for path in looked_up if path.startswith("/bkt/ck/d/")]
    np.testing.assert_array_equal(read_by_tensorstore(s3, "new")["params.large"], large)


@pytest.mark.check_all  # botocore tries again for 40 seconds
def test_an_object_that_vanishes_before_it_is_copied_is_an_error(service, tmp_path):
    large = np.random.default_rng(0).standard_normal((1 << 20,)).astype(np.float32)
    tree = {"params": {"w": TREE["params"]["w"], "large": large}}
    there = uploaded(service, saved(tmp_path / "ck", tree), f"{service.root}/ck")
    data = max(service.names("ck/"), key=lambda name: len(service.content(name)))
    waiting = [data]

    def remove(request):
        while request.kind == "copy" and waiting:
            service.remove(waiting.pop())

    service.before = remove
    with pytest.raises((CheckpointError, WriteError)) as failed:
        surgery.apply(there, f"{service.root}/new", RESCALED)
    assert isinstance(failed.value, CheckpointError)
    assert not service.names("new")
    assert not [name for name in service.names() if "surgery-tmp" in name]


def test_a_step_of_a_root(s3, tmp_path):
    there = uploaded(s3, SAMPLES / "digits_manager", "s3://bkt/runs/digits")
    plan = plan_of([operation_from_options("rescale", {"at": "params/Dense_1/bias", "by": 2.0})])
    surgery.apply(there, "s3://bkt/runs/new", plan, options=Options(seal=True))
    assert surgery.verify("s3://bkt/runs/new").agrees
    assert f"runs/new/500/{MARK}" in s3.names()
    with ocp.CheckpointManager(downloaded(s3, "runs/new", tmp_path)) as manager:
        assert manager.all_steps() == [500]


def test_what_stands_there_is_not_overwritten_unless_that_is_asked_for(s3, tmp_path):
    there = uploaded(s3, saved(tmp_path / "ck"), "s3://bkt/ck")
    surgery.apply(there, "s3://bkt/new", RESCALED)
    with pytest.raises(DestinationError, match="exists"):
        surgery.apply(there, "s3://bkt/new", RESCALED)
    surgery.apply("s3://bkt/new", "s3://bkt/newer", RESCALED)
    surgery.apply("s3://bkt/newer", "s3://bkt/new", RESCALED, options=Options(force=True))
    check(s3, "new", tmp_path, factor=8)
    assert {name.split("/")[0] for name in s3.names()} == {"ck", "new", "newer"}


def test_what_is_being_written_is_unfinished(service, tmp_path):
    """On `s3://`, too, where Orbax asks for no mark: until it is there, the lock beside says so."""
    there = uploaded(service, SAMPLES / "digits_manager", f"{service.root}/ck")
    lock = ".new.surgery-tmp-lock"
    seen = []

    def look(request):
        is_mark = request.kind == "copy" and MARK in f"{request.path}{request.query}"
        if is_mark and not seen:
            seen.append(lock in service.names())
            folder = tmp_path / "there"
            for name in service.names("new/"):
                service.put("bkt", f"half/{name[4:]}", service.content(name))
            service.put("bkt", ".half.surgery-tmp-lock", service.content(lock))
            assert folder

    service.before = look
    plan = plan_of([operation_from_options("rescale", {"at": "params/Dense_1/bias", "by": 2.0})])
    surgery.apply(there, f"{service.root}/new", plan)
    service.before = lambda request: None
    assert seen == [True]
    assert lock not in service.names()
    assert open_checkpoint(f"{service.root}/new").step == 500
    for text in (f"{service.root}/half", f"{service.root}/half/500"):
        filesystem.forget(text)
        with pytest.raises(CheckpointError):
            open_checkpoint(text)


def test_a_lock_that_another_run_has_by_now_is_left_alone(service, tmp_path):
    there = uploaded(service, saved(tmp_path / "ck"), f"{service.root}/ck")
    lock = ".new.surgery-tmp-lock"

    def take(request):
        if request.kind == "write" and "surgery.json" in f"{request.path}{request.query}":
            service.put("bkt", lock, b"another run's")

    service.before = take
    with pytest.raises(WriteError, match="was taken over by another run"):
        surgery.apply(there, f"{service.root}/new", RESCALED)
    assert service.content(lock) == b"another run's"
    assert f"new/{MARK}" not in service.names()


def test_what_the_service_carries_out_when_a_run_has_given_it_up_goes_as_well(
    service, tmp_path, monkeypatch
):
    """A request without an answer is made again, and then given up: it may come through after all was listed."""
    there = uploaded(service, saved(tmp_path / "ck"), f"{service.root}/ck")
    before, late = service.names(), iter(["new/d/late"])

    def come_through(request):
        if request.kind == "delete":
            for name in late:
                service.put("bkt", name, b"x")

    class WithoutAnswer(Guard):
        def __init__(self, *args, **more):
            super().__init__(*args, **more)
            self._asked.add("new/d/late")
            self._streamed(BucketPath(f"{service.root}/new/d/late"), 1, None)

    monkeypatch.setattr(buckets, "Guard", WithoutAnswer)
    service.before = come_through
    overflowing = plan_of([operation_from_options("rescale", {"at": "params/w", "by": 3e38})])
    with pytest.raises(SurgeryError, match="finite"):
        surgery.apply(there, f"{service.root}/new", overflowing)

    assert next(late, None) is None
    assert service.names() == before


LATE = f"new/d/{'0f' * 16}"
STRAY = [(LATE,), ("new",), ("new/_METADATA",), (LATE, "new/manifest.ocdbt"), ("new/d/notes",)]


@pytest.mark.parametrize("names", STRAY, ids="-".join)
def test_what_is_advised_where_something_stands_is_accepted(s3, tmp_path, names):
    """A late write of a killed run may stand alone: of nothing that is advised another run says no."""
    there = uploaded(s3, saved(tmp_path / "ck"), "s3://bkt/ck")
    for name in names:
        s3.put("bkt", name, b"of nobody")
    with pytest.raises(DestinationError, match="the destination 's3://bkt/new' exists") as caught:
        surgery.apply(there, "s3://bkt/new", RESCALED)
    (problem,) = caught.value.problems
    is_replaced = "--force" in str(problem.fix)
    if not is_replaced:
        with pytest.raises(DestinationError, match="which is not one checkpoint that can be read"):
            surgery.apply(there, "s3://bkt/new", RESCALED, options=Options(force=True))
        is_removed = names not in [
            ("new",),
            ("new/d/notes",),
        ]  # of which nobody knows what they are
        assert ("aws s3 rm" in str(problem.fix)) is is_removed
        for name in names:  # what the command does, or somebody who has looked
            s3.remove(name)
    surgery.apply(there, "s3://bkt/new", RESCALED, options=Options(force=is_replaced))
    check(s3, "new", tmp_path)


@pytest.mark.parametrize("options", [[], ["--force"]])
def test_what_removes_the_destination_is_told_as_it_stands_there(
    service, surgery, tmp_path, options
):
    """With `--recursive`, `aws s3 rm` adds a slash, and removes no single object."""
    there = uploaded(service, saved(tmp_path / "ck"), f"{service.root}/ck")
    service.put("bkt", "arr.msgpack", b"\x81\xa1w\xc3")
    service.put("bkt", "folder/manifest.ocdbt", b"no manifest")
    service.put("bkt", "notes/eval.json", b"{}")
    command = {"gs": "gcloud storage rm", "s3": "aws s3 rm"}[service.root[:2]]
    flag = {"gs": "-r ", "s3": "--recursive "}[service.root[:2]]
    for name, given in (("arr.msgpack", ""), ("folder", flag)):
        new = f"{service.root}/{name}"
        refused = surgery("rescue", there, new)
        assert refused.code == 2
        assert f"  name another place, or remove it first: `{command} {given}{new}`" in refused.err
    new = f"{service.root}/notes"
    refused = surgery("rescale", there, new, "params/w", "--by", "2", *options)
    assert refused.code == 2
    assert refused.err.endswith("  name another place\n")


@pytest.mark.parametrize(
    "words",
    [
        ("rescale", "SOURCE", "DST", "params/w", "--by", "2"),
        ("rescale", "SOURCE", "DST", "params/w", "--by", "2", "--dry-run"),
        ("export", "SOURCE", "DST", "--to", "npz"),
        ("rescue", "SOURCE", "DST"),
    ],
)
def test_of_a_bucket_that_is_not_there_it_is_said_whose_it_is(service, surgery, tmp_path, words):
    there = uploaded(service, saved(tmp_path / "ck"), f"{service.root}/ck")
    none = f"{service.root[:5]}no-such"
    places = {"SOURCE": there, "DST": f"{none}/new.npz" if "npz" in words else f"{none}/new"}
    said = surgery(*(places.get(word, word) for word in words))
    assert said.code == 3
    assert said.err.startswith(f"error: the destination's bucket '{none}' is not there\n")
    said = surgery("inspect", f"{none}/ck")
    assert (said.code, "destination" in said.err) == (3, False)


@pytest.mark.parametrize(
    ("source", "new", "said"),
    [
        ("bucket", "bucket", "copied by the service: the result is independent of the source"),
        ("bucket", "disk", "copied: the result is independent of the source"),
        ("disk", "bucket", "copied: the result is independent of the source"),
        ("disk", "disk", "refer to the source's own bytes"),
    ],
)
@pytest.mark.parametrize("preview", [[], ["--dry-run"]])
def test_whether_bytes_are_shared_is_said_as_it_is(
    service, surgery, tmp_path, source, new, said, preview
):
    here = saved(tmp_path / "ck")
    source = str(here) if source == "disk" else uploaded(service, here, f"{service.root}/ck")
    new = str(tmp_path / "new") if new == "disk" else f"{service.root}/new"
    words = ["rescale", source, new, "params/w", "--by", "2", "--link", "hard", *preview]
    done = surgery(*words)
    assert done.code == 0
    (line,) = [line for line in done.out.splitlines() if line.startswith("copy-on-write: ")]
    assert line.endswith(said)
