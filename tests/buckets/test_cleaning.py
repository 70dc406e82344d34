"""`clean` on a bucket: what a killed run left goes, what may still be written stays."""

import itertools
import json
import signal
import subprocess
import sys
import time

import msgspec
import pytest

from surgery_cli import surgery as library
from surgery_cli.errors import CheckpointError
from surgery_cli.inputs.buckets import path_at
from surgery_cli.settings.run import Options
from surgery_cli.store.filesystem.processes import Owner
from surgery_cli.store.open.checkpoint import open_checkpoint
from tests.buckets.checkpoints import MARK, RESCALED, inventoried, saved, uploaded
from tests.buckets.server import Faults

LOCK = ".new.surgery-tmp-lock"
BESIDE = ".new.surgery-tmp-0123abcd"


@pytest.fixture
def source(service, tmp_path):
    return uploaded(service, saved(tmp_path / "ck"), f"{service.root}/ck")


@pytest.fixture
def new(service, source):
    """The address of a result, which is whole."""
    library.apply(source, f"{service.root}/new", RESCALED)
    return f"{service.root}/new"


def locked(service, place=LOCK, **said):
    """Put a lock, of this process unless it says something else."""
    whole = {"run": "x", **msgspec.to_builtins(Owner.here()), **said}
    service.put("bkt", place, json.dumps(whole).encode())


def left_beside(service):
    return [name for name in service.names() if "surgery-tmp" in name]


def killed(service, source, moment, *options):
    """A run to `new` that is killed as soon as ``moment`` holds of what it has written."""
    service.faults = Faults(latency=0.01)
    words = ["rescale", source, f"{service.root}/new", "params/w", "--by", "2", *options]
    with subprocess.Popen([sys.executable, "-m", "surgery_cli", *words]) as run:
        while not moment(service.names()):
            assert run.poll() is None
            time.sleep(0.005)
        run.send_signal(signal.SIGKILL)
    service.faults = Faults()
    service.settle()


def test_what_a_killed_run_built_goes_with_its_lock(service, source, surgery):
    before = service.names()
    killed(service, source, lambda names: len(names) > len(before) + 2)
    assert LOCK in service.names()
    with pytest.raises(CheckpointError):
        open_checkpoint(f"{service.root}/new")
    refused = surgery("rescale", source, f"{service.root}/new", "params/w", "--by", "2")
    assert refused.code == 2
    assert f"`surgery clean {service.root}/new`" in refused.err
    shown = surgery("clean", f"{service.root}/new", "--dry-run")
    assert (shown.code, LOCK in service.names()) == (0, True)
    assert f"would remove {service.root}/new: " in shown.out
    done = surgery("clean", f"{service.root}/new")
    assert done.code == 0
    assert service.names() == before
    assert "nothing was left" in surgery("clean", f"{service.root}/new").out


@pytest.mark.parametrize("named", ["", "/new", f"/{LOCK}"])
def test_it_is_found_by_each_of_its_names(service, tmp_path, surgery, named):
    uploaded(service, saved(tmp_path / "ck"), f"{service.root}/runs/ck")
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    built = f"{service.root}/runs/new"
    locked(service, f"runs/{LOCK}", builds=built, pid=process.pid, started="1")
    service.put("bkt", "runs/new/d/1", b"x")
    before = [name for name in service.names() if name.startswith("runs/ck")]
    assert surgery("clean", f"{service.root}/runs{named}").code == 0
    assert service.names() == before


def test_a_step_is_refused_and_its_run_is_looked_at(service, tmp_path, surgery):
    """It said that nothing was left: no file is called so."""
    uploaded(service, saved(tmp_path / "ck"), f"{service.root}/runs/1")
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    built = f"{service.root}/runs/7"
    locked(
        service,
        "runs/.7.surgery-tmp-lock",
        builds=built,
        pid=process.pid,
        started="1",
        replaces=False,
    )
    service.put("bkt", "runs/7/d/1", b"x")
    for step in ("7", "latest"):
        refused = surgery("clean", f"{service.root}/runs@{step}")
        assert refused.code == 2
        assert f"`surgery clean {service.root}/runs` looks at all steps" in refused.err
    assert surgery("clean", f"{service.root}/runs").code == 0
    assert not [name for name in service.names() if name.startswith(("runs/7", "runs/."))]


@pytest.mark.parametrize(
    ("owner", "stale"), [("living", False), ("living", True), ("other", False)]
)
def test_what_may_still_be_written_stays(service, surgery, owner, stale):
    elsewhere = {"machine": "feedbeef"} if owner == "other" else {}
    locked(service, builds=f"{service.root}/new", **elsewhere)
    service.put("bkt", "new/d/1", b"x")
    kept = surgery("clean", f"{service.root}/new", *(["--stale"] if stale else []))
    assert kept.code == 1
    assert service.names() == [LOCK, "new/d/1"]
    if owner == "other":
        assert "`--stale` removes them" in kept.out
        assert surgery("clean", f"{service.root}/new", "--stale").code == 0
        assert service.names() == []


def test_a_lock_cannot_have_anything_else_removed(service, source, surgery):
    """What it says is checked: only the destination, or what stands beside it for it, may go."""
    before = service.names()
    for builds in (source, f"{service.root}", "", "../ck", "x"):
        service.put("bkt", LOCK, json.dumps({"builds": builds, "run": "x"}).encode())
        assert surgery("clean", f"{service.root}/new", "--stale").code == 0
        assert service.names() == before


def test_a_whole_result_stays(service, new, surgery):
    whole = service.names()
    service.put("bkt", LOCK, json.dumps({"builds": new}).encode())
    assert surgery("clean", new, "--stale").code == 0
    assert service.names() == whole
    assert open_checkpoint(new).tree


@pytest.mark.parametrize("has_lock", [True, False], ids=["locked", "lock gone"])
def test_what_replaces_another_is_not_removed_where_it_alone_is_whole(
    service, new, surgery, has_lock
):
    """The lock is gone where somebody has read in half what an error says when a replacement fails."""
    for name in service.names("new/"):
        service.put("bkt", f"{BESIDE}/{name}", service.content(name))
    inventoried(path_at(f"{service.root}/{BESIDE}"))
    if has_lock:
        built = f"{service.root}/{BESIDE}"
        service.put("bkt", LOCK, json.dumps({"builds": built}).encode())
    service.remove(f"new/{MARK}")
    before = service.names()
    kept = surgery("clean", new, *[] if has_lock else ["--stale"])
    assert (kept.code, service.names()) == (1, before)
    said = " ".join(kept.out.split())
    assert "is half replaced" in said
    advice = f"`surgery rescue {service.root}/{BESIDE}/new NEW` takes that"
    assert advice in said
    places = library.doctor(service.root, settled_seconds=0).places
    (told,) = [one for one in places if one.path == BESIDE]
    assert advice in told.todo
    if has_lock:
        with pytest.raises(CheckpointError):
            open_checkpoint(new)
    service.put("bkt", f"new/{MARK}", b"")
    assert surgery("clean", new, "--stale").code == 0
    assert not left_beside(service)
    assert open_checkpoint(new).tree


@pytest.mark.sampled(2)
def test_force_after_a_killed_run_replaces_what_stood_there(service, source, new, surgery):
    killed(
        service,
        source,
        lambda names: any("surgery-tmp-" in n and "/d/" in n for n in names),
        "--force",
    )
    assert open_checkpoint(new).tree
    assert surgery("clean", service.root).code == 0
    library.apply(source, new, RESCALED, options=Options(force=True))
    assert not left_beside(service)


@pytest.mark.sampled(3)
@pytest.mark.covers(1)
@pytest.mark.parametrize("stray", ["0123abcd/new/d/1", "0123abcd-journal/00000003"])
@pytest.mark.parametrize("named", ["", "/new", "/."], ids=["parent", "destination", "itself"])
def test_what_no_lock_stands_for_is_named_and_goes_with_stale_alone(
    service, tmp_path, surgery, named, stray
):
    """A run that was taken over wakes, and writes one thing more where nobody looks."""
    there = uploaded(service, saved(tmp_path / "ck"), f"{service.root}/runs/ck")
    library.apply(there, f"{service.root}/runs/new", RESCALED)
    foreign = "runs/.new.surgery-tmp-mine/x"  # no run of ours has called it so
    service.put("bkt", foreign, b"x")
    before = service.names()
    name = f".new.surgery-tmp-{stray}"
    service.put("bkt", f"runs/{name}", b"x" * 7)
    folder = f"{service.root}/runs/{name.partition('/')[0]}"
    place = folder if named == "/." else f"{service.root}/runs{named}"

    (row,) = library.clean(place).kept
    assert (row.path, row.state, row.bytes) == (folder, "unknown", 7)
    shown = surgery("clean", place)
    assert shown.code == 1
    assert f"kept {folder}: of a run that did not say which it is" in shown.out
    assert "`--stale` removes them" in shown.out
    (told,) = [
        one
        for one in library.doctor(f"{service.root}/runs", settled_seconds=0).places
        if one.path == folder.rpartition("/")[2]
    ]
    assert f"if that run is over, `surgery clean {folder} --stale` removes it" in told.todo

    locked(service, f"runs/{LOCK}")
    assert folder not in [one.path for one in library.clean(place, stale=True).removed]
    assert f"runs/{name}" in service.names()
    service.remove(f"runs/{LOCK}")

    assert [one.path for one in library.clean(place, stale=True).removed] == [folder]
    assert service.names() == before
    assert open_checkpoint(f"{service.root}/runs/new").tree


@pytest.mark.parametrize("at", range(1, 5))
def test_a_run_that_ends_meanwhile_has_left_nothing(service, new, surgery, at):
    """Its lock goes, at whichever of the requests that look for it."""
    locked(service)
    count = itertools.count(1)

    def ends(request):
        if next(count) == at:
            service.remove(LOCK)

    service.before = ends
    result = surgery("clean", new)
    service.before = lambda request: None
    assert result.code in (0, 1), result.err  # 1: it was still at work when it was looked at
    assert "changed while" not in result.err
    if LOCK in service.names():  # fewer requests look for it where something is known
        service.remove(LOCK)
    assert surgery("clean", new).code == 0
