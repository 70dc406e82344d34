"""Of what is half replaced only one copy is whole: whoever takes over, and is killed in turn, keeps it."""

import json

import numpy as np
import pytest

from surgery_cli.store import filesystem
from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.tree.paths import LeafPath
from tests.buckets.checkpoints import MARK, saved, uploaded
from tests.buckets.test_resume import LOCK, TREE, command
from tests.store.cutting import Runs

OTHERS = {"params": {k: v * 100 for k, v in TREE["params"].items()}, "opt_state": TREE["opt_state"]}


SEEN = {}
"""Objects by name and content, as a service that counts versions has them: what is put back is what it was."""


def put(service, objects):
    """Let these stand in the bucket beside the source, and nothing else."""
    for name in service.names():
        if not name.startswith("ck/"):
            service.remove(name)
    for name, content in objects.items():
        if service.scheme == "gs" and (name, content) in SEEN:
            service.buckets["bkt"][name] = SEEN[name, content]
        else:
            service.put("bkt", name, content)


def contents(service):
    service.settle()  # a request of one that was killed may still be carried out
    found = {n: service.content(n) for n in service.names() if not n.startswith("ck/")}
    if service.scheme == "gs":
        SEEN.update({(n, content): service.buckets["bkt"][n] for n, content in found.items()})
    return found


def half_replaced(service, elsewhere, words, old):
    """What stands there when a run was killed as it put the leaves in their places, one by one."""
    put(service, old)
    total = elsewhere(*words, cut=["request+", 10**6, "SIGKILL"])["counted"]
    for back in range(30, total):
        put(service, old)
        assert elsewhere(*words, cut=["request+", total - back, "SIGKILL"])["code"] == -9
        now = contents(service)
        leaves = [
            now.get(f"new/params.{name}/0.0") == old[f"new/params.{name}/0.0"]
            for name in TREE["params"]
        ]
        has_mark = f"new/{MARK}" in now
        if True in leaves and False in leaves and not has_mark:
            return now
    raise AssertionError("no moment is in between")


def told(service, surgery):
    """'' where nobody takes it for a checkpoint, else of which one its leaves are."""
    filesystem.forget(service.root)
    if surgery("inspect", f"{service.root}/new").code != 0:
        return ""
    result = open_checkpoint(f"{service.root}/new")
    found = set()
    for name, values in TREE["params"].items():
        read = result.read(LeafPath(("params", name)))
        is_new = np.array_equal(read, values * np.float32(2))
        found.add(
            "new" if is_new else "old" if np.array_equal(read, OTHERS["params"][name]) else "?"
        )
    return " and ".join(sorted(found))


@pytest.mark.parametrize("cut", ["SIGKILL", "SIGTERM"])
def test_nor_does_one_of_a_run_that_begins_anew(service, tmp_path, surgery, cut):
    """What was built is not what it was, and goes: that the old one is half replaced must outlive it."""
    source = uploaded(service, saved(tmp_path / "ck", TREE, use_ocdbt=False), f"{service.root}/ck")
    service.upload(saved(tmp_path / "old", OTHERS, use_ocdbt=False), f"{service.root}/new")
    old = contents(service)
    words, seen = command(source, service, "--force"), 0
    with Runs("gcsfs", "s3fs") as here:
        begun = half_replaced(service, here, words, old)
        built = next(n for n in begun if "surgery-tmp" in n and n.endswith("count/0"))
        for moment in range(20, 200, 12):
            put(service, begun | {built: b"another"})
            ended = here(*words, cut=["request+", moment, cut])
            service.settle()
            if ended["code"] == 0:
                break
            seen += 1
            assert told(service, surgery) in ("", "new"), moment
            surgery("clean", f"{service.root}/new", "--stale")
            assert told(service, surgery) in ("", "new"), moment
            went_on = here(*words)
            assert went_on["code"] == 0, (moment, went_on["said"])
            assert told(service, surgery) == "new"
    assert seen > 2


@pytest.mark.check_all
@pytest.mark.covers(1)
@pytest.mark.parametrize("is_marked", [False, True], ids=["unmarked", "marked"])
def test_a_second_kill_loses_nothing(service, tmp_path, surgery, is_marked):
    """The lock of the second one said that the old one had no mark, and the inventory of the first had gone."""
    source = uploaded(service, saved(tmp_path / "ck", TREE, use_ocdbt=False), f"{service.root}/ck")
    service.upload(saved(tmp_path / "old", OTHERS, use_ocdbt=False), f"{service.root}/new")
    old = contents(service)
    old.pop(f"new/{MARK}", None)
    if is_marked or service.scheme == "gs":
        old[f"new/{MARK}"] = b""
    words, seen = command(source, service, "--force"), 0
    with Runs("gcsfs", "s3fs", machine="feedbeef") as elsewhere, Runs("gcsfs", "s3fs") as here:
        begun = half_replaced(service, elsewhere, words, old)
        assert told(service, surgery) == ""
        for moment in range(40, 200, 3):
            put(service, begun)
            ended = here(*words, "--stale", cut=["request+", moment, "SIGKILL"])
            if ended["code"] != -9 or seen > 8:
                break
            if (
                LOCK in service.names()
                and json.loads(service.content(LOCK))["machine"] != "feedbeef"
            ):
                seen += 1
            assert told(service, surgery) in ("", "new"), moment
            surgery("clean", f"{service.root}/new")
            assert told(service, surgery) in ("", "new"), moment
            if told(service, surgery) == "":
                went_on = here(*words, "--stale")
                assert went_on["code"] == 0, (moment, went_on["said"])
                assert told(service, surgery) == "new"
    assert seen > 2
