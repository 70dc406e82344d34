"""What a run has not made, and what has come since, stands when it has failed, was cleaned, or has lost its lock."""

import json
from urllib.parse import unquote

import msgspec
import pytest

from surgery_cli import surgery
from surgery_cli.errors import SurgeryError
from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.bucket_locks import guarded
from surgery_cli.store.filesystem.processes import Owner
from tests.buckets.checkpoints import MARK, SAMPLES, saved, uploaded
from tests.store.cutting import Runs

LOCK = "run/.new.surgery-tmp-lock"
INFINITE = plan_of([operation_from_options("rescale", {"at": "params/w", "by": 3e38})])


def killed(service, new, **more):
    """The lock of a run to `run/new` that is over; its content."""
    owner = {**msgspec.to_builtins(Owner.here()), "pid": 999_999, "started": "0", **more}
    content = json.dumps({"run": "x", **owner, "builds": new, "replaces": False}).encode()
    service.put("bkt", LOCK, content)
    return content


def test_a_record_of_something_else_stays(service, tmp_path):
    """Beside a destination that is a folder: of a file of that name which was moved, say."""
    there = uploaded(service, saved(tmp_path / "ck"), f"{service.root}/ck")
    record = "run/.new.surgery.json"
    service.put("bkt", record, b"{}")
    with pytest.raises(SurgeryError, match="non-finite"):
        surgery.apply(there, f"{service.root}/run/new", INFINITE)
    assert service.names("run/") == [record]
    new = uploaded(service, saved(tmp_path / "half"), f"{service.root}/run/new")
    service.remove(f"run/new/{MARK}")
    killed(service, new)
    surgery.clean(new)
    assert service.names("run/") == [record]


@pytest.mark.parametrize("size", [1 << 10, 9 << 20], ids=["small", "in pieces"])
@pytest.mark.parametrize("is_known", [True, False])
def test_what_comes_under_another_lock_is_not_replaced(service, size, is_known):
    """Objects of some megabytes went there without a condition, whatever the service was told of the others."""
    folder, lost = BucketPath(f"{service.root}/guarded-{size}-{is_known}"), []
    record = folder / "surgery.json"
    service.put("bkt", "copied.json", b"copied")

    def check():
        if lost:
            raise RuntimeError("taken over")

    with guarded(folder, check):
        if is_known:
            filesystem.copy(f"{service.root}/copied.json", record)
            assert filesystem.exists(record)
        lost.append(True)
        service.put("bkt", record.key, b"another run's")
        with pytest.raises((RuntimeError, FileExistsError)):
            filesystem.write(record, b"x" * size)
    assert service.content(record.key) == b"another run's"


@pytest.mark.parametrize("size", [1 << 10, 9 << 20], ids=["small", "in pieces"])
def test_what_this_run_has_made_is_replaced(service, size):
    folder = BucketPath(f"{service.root}/again-{size}")
    service.put("bkt", "copied.json", b"copied")
    with guarded(folder, lambda: None):
        filesystem.copy(f"{service.root}/copied.json", folder / "surgery.json")
        for letter in (b"x", b"y"):
            filesystem.write(folder / "surgery.json", letter * size)
            assert service.content((folder / "surgery.json").key) == letter * size


def test_marks_go_before_what_they_speak_of(service):
    """Else what is left of a removal that was cut short looks whole."""
    new = uploaded(service, SAMPLES / "digits_manager" / "250", f"{service.root}/run/new")
    marks = ["run/new/metrics/" + MARK, "run/new/default/" + MARK, "run/new/" + MARK]
    for mark in marks[:2]:
        service.put("bkt", mark, b"")
    service.put("bkt", marks[2], b"")
    killed(service, new)
    service.remove(marks[2])
    service.log.clear()
    surgery.clean(new)
    gone = [unquote(r.path) for r in service.log if service.kind_of(r) == "delete"]
    assert len(gone) > 10
    assert {path[-len(MARK) :] for path in gone[:2]} == {MARK}
    assert not [path for path in gone[2:] if path.endswith(MARK)]


@pytest.mark.parametrize("beside", [0, 1200])
def test_a_result_that_is_marked_meanwhile_is_not_what_was_left(service, tmp_path, beside):
    """Between a look at what was left and the takeover of its lock. However many objects stand beside it, which is
    what made it be looked at again.
    """
    new = uploaded(service, saved(tmp_path / "ck"), f"{service.root}/run/new")
    service.remove(f"run/new/{MARK}")
    content, seen = killed(service, new, machine="feedbeef"), []
    for number in range(beside):
        service.put("bkt", f"run/old-{number}", b"x")

    def before(request):
        if service.kind_of(request) == "write" and not seen:
            seen.append(request)
            service.put("bkt", f"run/new/{MARK}", content)

    service.before = before
    try:
        assert surgery.clean(new, stale=True).removed == []
    finally:
        service.before = lambda _: None
    assert seen
    assert f"run/new/{MARK}" in service.names("run/new/")
    assert LOCK not in service.names("run/")


def command(source, service, *more):
    edit = (
        "rescale",
        source,
        f"{service.root}/new",
        "params/w",
        "--by",
        "2",
        "--optimizer",
        "keep",
    )
    return (*edit, "--quiet", *more)


@pytest.mark.parametrize("moment", [12, 16])
def test_a_save_that_came_after_a_kill_stays(service, tmp_path, surgery, moment):
    """Orbax asks nobody, and on `s3://` leaves no mark: neither who cleans, nor who goes on, removes what it saved."""
    source = uploaded(service, saved(tmp_path / "ck"), f"{service.root}/ck")
    with Runs("gcsfs", "s3fs") as run:
        killed_run = run(*command(source, service, "--resume"), cut=["request+", moment, "SIGKILL"])
    assert killed_run["code"] == -9, killed_run["said"]
    service.settle()
    service.upload(saved(tmp_path / "other"), f"{service.root}/new")
    if service.scheme == "gs":
        service.remove(f"new/{MARK}")  # it is under way
    theirs = {name: service.content(name) for name in service.names("new/")}
    went_on = surgery(*command(source, service, "--resume"))
    assert went_on.code == 2, went_on.err
    assert theirs == {name: service.content(name) for name in service.names("new/")}
    surgery("clean", f"{service.root}/new", "--stale")
    assert theirs == {name: service.content(name) for name in service.names("new/")}
