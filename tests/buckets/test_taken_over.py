"""A run that stood still, and wakes when another one has finished in its place, changes nothing there."""

import json
import os
import signal
import time

import msgspec
import pytest

from surgery_cli.store.filesystem.processes import Owner
from tests.buckets.checkpoints import MARK, saved, uploaded
from tests.buckets.server import Faults
from tests.buckets.test_resume import LOCK, TREE, check, command
from tests.store.cutting import Runs

EVERY = 8
TURN = int(os.environ.get("TURN", time.time() // 86400))
"""A run has up to two hundred moments, each of which takes seconds: every eighth is tried, other ones each day."""

CHANGES = ("write", "copy", "delete")
ELSEWHERE = "feedbeef"


@pytest.fixture
def runs(service):
    client = "gcsfs" if service.root.startswith("gs") else "s3fs"
    with Runs(client, machine=ELSEWHERE) as elsewhere, Runs(client) as here:
        yield elsewhere, here


@pytest.fixture
def source(service, tmp_path):
    return uploaded(service, saved(tmp_path / "ck", TREE), f"{service.root}/ck")


def stop_at(service, elsewhere, moment, is_done, words):
    """Begin a run, and stop it as its change number ``moment`` comes; the outcome if there are not so many.

    ``is_done``: the service does it, and the run hears of it once it is awake; else it asks once more then.
    """
    seen, process = [0], []

    def among(kind):
        if kind in CHANGES and process:
            seen[0] += 1
            if seen[0] == moment:
                os.kill(process[0], signal.SIGSTOP)
                return not is_done
        return False

    service.faults = Faults("503", every=1, among=among)
    process.append(elsewhere.begin(*words))
    ended = elsewhere.stopped()
    service.faults = Faults()
    time.sleep(0.3)  # what came is answered
    return ended


def standing(service, begin=""):
    """Each object with what tells it from one that was put in its place."""
    return {name: service.version(name) for name in service.names(begin)}


def replaced(service, here, words, how):
    """Another run finishes what one that is said to be over had begun, or begins anew where that was cleaned."""
    if how == "resume":
        return here(*words, "--stale")
    assert here("clean", f"{service.root}/new", "--stale")["code"] == 0
    return here(*words)


@pytest.mark.check_all
@pytest.mark.parametrize("is_done", [True, False], ids=["answered", "asked again"])
@pytest.mark.parametrize(
    ("begun", "how"),
    [("resume", "resume"), ("resume", "clean"), ("plain", "clean"), ("force", "clean")],
)
def test_who_wakes_changes_nothing(service, source, runs, tmp_path, begun, how, is_done):
    elsewhere, here = runs
    words = command(source, service)
    if begun != "resume":
        words = tuple(word for word in words if word != "--resume")
    if begun == "force":
        words = (*words, "--force")
    for moment in range(1 + TURN % EVERY, 200, EVERY):
        for name in service.names():
            if not name.startswith("ck/"):
                service.remove(name)
        if begun == "force":
            old = [word for word in command(source, service, by="4") if word != "--resume"]
            assert here(*old)["code"] == 0
        ended = stop_at(service, elsewhere, moment, is_done, words)
        if ended is not None:
            assert ended["code"] == 0, ended["said"]
            break
        if LOCK not in service.names():  # it has not begun, or is over
            assert elsewhere.go_on()["code"] == 0
            check(service, tmp_path / str(moment))
            continue
        lock, mark = service.content(LOCK), f"new/{MARK}"
        is_marked = mark in service.names() and service.content(mark) == lock
        after = replaced(service, here, words, how)
        assert is_marked or after["code"] == 0, (moment, after["said"])
        begin = "new/" if is_marked else ""  # it has still to remove what stands beside
        before = standing(service, begin)
        woken = elsewhere.go_on()
        after = standing(service, begin)
        assert {name: after.get(name) for name in before} == before, (moment, woken["said"])
        added = [name for name in after if name not in before]  # of random names, never referred to
        assert all(begun == "plain" and "/d/" in name for name in added), added
        if not is_marked:
            assert woken["code"] != 0, (moment, woken["said"])
            assert "goes on from there" not in woken["said"]
            told = ("was taken over by another run", "exists", "another run")
            assert any(words in woken["said"] for words in told), woken["said"]
        check(service, tmp_path / str(moment))
    assert moment > 15


@pytest.mark.check_all
@pytest.mark.covers(1)
@pytest.mark.parametrize("is_old", [False, True], ids=["new", "replaced"])
@pytest.mark.parametrize("state", ["living", "elsewhere", "killed"])
def test_what_a_run_has_locked_is_never_to_be_removed_by_hand(
    service, source, runs, tmp_path, state, is_old
):
    """`--force` over what a run builds, or has left: the lock would stand in the way of the next one."""
    _, here = runs
    resumed = command(source, service, *["--force"] * is_old)
    plain = [word for word in resumed if word != "--resume"]
    if is_old:
        assert here(*plain)["code"] == 0
    if state == "killed":
        assert here(*resumed, cut=["entry+", 5, "SIGKILL"])["code"] == -9
    else:
        assert here(*plain, cut=["request", 6, "SIGKILL"])["code"] == -9
        owner = msgspec.to_builtins(Owner.here())
        owner |= {"machine": ELSEWHERE} if state == "elsewhere" else {}
        service.put("bkt", LOCK, json.dumps(json.loads(service.content(LOCK)) | owner).encode())
    for more in [[], ["--resume"]][: 1 if state == "killed" else 2]:
        refused = here(*plain, *["--force"] * (not is_old), *more)
        assert refused["code"] == 2, refused["said"]
        assert " rm " not in refused["said"]
        advice = {
            "living": "wait for it, or end it",
            "elsewhere": "--stale`",
            "killed": "surgery clean",
        }
        assert advice[state] in refused["said"]
    if state != "living":
        stale = ["--stale"] * (state == "elsewhere")
        assert here("clean", f"{service.root}/new", *stale)["code"] == 0
        assert here(*plain, *["--force"] * (not is_old))["code"] == 0
        check(service, tmp_path)
