"""Rescue of what stands in buckets, and results there: judged by Orbax once they were copied to this disk."""

import json

import msgspec
import numpy as np
import orbax.checkpoint as ocp
import pytest
from etils import epath

from surgery_cli import surgery
from surgery_cli.errors import CheckpointError, DestinationError
from surgery_cli.inputs.buckets import path_at
from surgery_cli.store.filesystem.processes import Owner
from tests.buckets.checkpoints import MARK, TREE, inventoried, saved, uploaded
from tests.buckets.test_destinations import downloaded

LAYOUTS = [{}, {"use_ocdbt": False}]


@pytest.fixture(params=LAYOUTS, ids=["ocdbt", "leaf folders"])
def how(request):
    return request.param


def _restored(server, name, tmp_path):
    with ocp.PyTreeCheckpointer() as checkpointer:
        return checkpointer.restore(downloaded(server, name, tmp_path / "down"))


def test_an_upload_that_stopped_is_rescued_where_it_stands(service, how, tmp_path):
    there = uploaded(service, saved(tmp_path / "ck", **how), f"{service.root}/ck")
    for key in list(service.names("ck/")):
        lost = (
            "ck/_METADATA",
            "ck/manifest.ocdbt",
            f"ck/{MARK}",
            "ck/params.b/0.0",
            "ck/_sharding",
        )
        if key in lost:
            service.remove(key)
    before = {key: service.content(key) for key in service.names("ck/")}

    found = surgery.rescue(there)
    surgery.rescue(there, f"{service.root}/new", allow_partial=True)

    rows = {row.path: row.state for row in found.leaves}
    is_there = "whole" if not how else "lost"
    assert rows == {"params/w": "whole", "params/b": is_there, "opt_state/count": "whole"}
    tree = _restored(service, "new", tmp_path)
    np.testing.assert_array_equal(tree["params"]["w"], TREE["params"]["w"])
    assert tree["opt_state"]["count"] == 3
    assert ("b" in tree["params"]) == (not how)
    assert f"new/{MARK}" in service.names("new/")
    assert {key: service.content(key) for key in service.names("ck/")} == before
    assert not [key for key in service.names("") if "surgery-tmp" in key]


def test_from_a_bucket_to_a_disk_with_an_older_step_in_the_bucket(service, how, tmp_path):
    there = uploaded(service, saved(tmp_path / "ck", **how), f"{service.root}/ck")
    older = {"params": {"w": -TREE["params"]["w"], "b": TREE["params"]["b"]}, **_count(1)}
    uploaded(service, saved(tmp_path / "old", older, **how), f"{service.root}/old")
    data = [k for k in service.names("ck/") if "params.w/0" in k or "ocdbt.process_0/d/" in k]
    service.remove(max(data, key=lambda key: len(service.content(key))))

    surgery.rescue(there, str(tmp_path / "new"), fill_from=f"{service.root}/old")

    with ocp.PyTreeCheckpointer() as checkpointer:
        w = checkpointer.restore(tmp_path / "new")["params"]["w"]
    assert np.array_equal(np.abs(w), TREE["params"]["w"])


def _half_replaced(service, how, tmp_path, *, locked):
    """An old checkpoint of which a killed `--force` has replaced the first half of the objects; and the new one."""
    old = {"params": {name: -values for name, values in TREE["params"].items()}, **_count(1)}
    there = uploaded(service, saved(tmp_path / "old", old, **how), f"{service.root}/ck")
    built = ".ck.surgery-tmp-0123abcd"
    new = uploaded(service, saved(tmp_path / "ck", **how), f"{service.root}/{built}/ck")
    if f"ck/{MARK}" in service.names("ck/"):
        service.remove(f"ck/{MARK}")
    names = sorted(set(service.names(f"{built}/ck/")) - {f"{built}/ck/{MARK}"})
    for name in names[: len(names) // 2]:
        service.put("bkt", name.removeprefix(f"{built}/"), service.content(name))
    inventoried(path_at(f"{service.root}/{built}"))
    service.put("bkt", f"{built}/ck/{MARK}", b"")
    if locked:
        owner = msgspec.to_builtins(Owner.here()) | {"pid": 2**22 - 1, "started": "1"}
        said = {"run": "x", "builds": f"{service.root}/{built}", **owner}
        service.put("bkt", ".ck.surgery-tmp-lock", json.dumps(said).encode())
    return there, new


@pytest.mark.parametrize("locked", [True, False], ids=["its lock stands", "without its lock"])
def test_nothing_is_taken_of_two_checkpoints(service, how, tmp_path, locked) -> None:
    """A leaf does not tell to which of them it belongs: each is whole, and the tree would be neither."""
    there, new = _half_replaced(service, how, tmp_path, locked=locked)
    before = {key: service.content(key) for key in service.names("")}
    looks = (
        lambda: surgery.rescue(there),
        lambda: surgery.rescue(there, str(tmp_path / "new")),
        lambda: surgery.rescue(f"{service.root}/", str(tmp_path / "new")),
        lambda: surgery.inspect(there),
        lambda: surgery.verify(there),
    )
    for look in looks[: None if locked else 2]:
        with pytest.raises(
            CheckpointError, match="is half replaced: what stands there may be of two"
        ):
            look()
    assert {key: service.content(key) for key in service.names("")} == before

    surgery.rescue(new, str(tmp_path / "new"))  # as it is said
    with ocp.PyTreeCheckpointer() as checkpointer:
        tree = checkpointer.restore(tmp_path / "new")
    np.testing.assert_array_equal(tree["params"]["w"], TREE["params"]["w"])
    np.testing.assert_array_equal(tree["params"]["b"], TREE["params"]["b"])
    assert tree["opt_state"]["count"] == 3


@pytest.mark.parametrize("more", [(), ("--force",), ("--force", "--resume")], ids=" ".join)
def test_a_run_to_what_is_half_replaced_says_where_the_new_one_is(
    service, tmp_path, surgery, more
) -> None:
    there, new = _half_replaced(service, {}, tmp_path, locked=True)
    source = uploaded(service, saved(tmp_path / "more"), f"{service.root}/source")

    ended = surgery("rescale", source, there, "params/w", "--by", "2", *more)

    assert ended.code == 2
    assert f"surgery rescue {new} NEW" in ended.err


def test_what_is_half_in_the_place_of_nothing_is_no_mixture(service, tmp_path, surgery) -> None:
    """Of a run whose lock stands nobody says that the lock is gone, nor that two checkpoints are there."""
    there, _ = _half_replaced(service, {}, tmp_path, locked=True)
    lock = ".ck.surgery-tmp-lock"
    told = json.loads(service.content(lock)) | {"replaces": False}
    service.put("bkt", lock, json.dumps(told).encode())
    said = [surgery("inspect", there).err, surgery("clean", there, "--dry-run").out]
    assert not [text for text in said if "half replaced" in text or "lock is gone" in text], said
    before = service.names("ck/")
    assert surgery("clean", there).code == 0
    assert not service.names(".ck")
    assert service.names("ck/") == before  # not all of it was copied there


def _count(number):
    return {"opt_state": {"count": np.int32(number)}}


def test_what_stands_in_a_bucket_is_not_replaced(service, tmp_path):
    there = uploaded(service, saved(tmp_path / "ck"), f"{service.root}/ck")
    with pytest.raises(DestinationError, match="is the source itself"):
        surgery.rescue(there, there)
    other = uploaded(service, saved(tmp_path / "other"), f"{service.root}/other")
    with pytest.raises(DestinationError, match="exists"):
        surgery.rescue(there, other)


def test_of_a_run_in_a_bucket_comes_one_in_which_a_manager_finds_the_step(bucket, tmp_path):
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        for step in (7, 11):
            manager.save(step, args=ocp.args.PyTreeSave(TREE))
    run = uploaded(bucket, tmp_path / "run", "gs://bkt/run")
    bucket.put("bkt", "run/config.yaml", b"width: 5")
    bucket.remove(f"run/11/{MARK}")

    surgery.rescue(f"{run}@11", "gs://bkt/runs/new")
    surgery.rescue("gs://bkt/runs/new", "gs://bkt/more/11")  # a step, as it is called

    assert bucket.content("runs/new/config.yaml") == b"width: 5"
    for root in ("gs://bkt/runs/new", "gs://bkt/more"):
        with ocp.CheckpointManager(epath.Path(root)) as manager:
            assert manager.all_steps() == [11]
            found = manager.restore(11, args=ocp.args.PyTreeRestore())
        np.testing.assert_array_equal(found["params"]["w"], TREE["params"]["w"])
    assert not [key for key in bucket.names("") if "surgery-tmp" in key]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("origin", "target"), [("gs", "gs"), ("gs", "s3"), ("s3", "gs"), ("disk", "gs"), ("disk", "s3")]
)
def test_the_command_writes_where_the_library_does(
    surgery, bucket, s3, tmp_path, origin, target, how
):
    servers = {"gs": bucket, "s3": s3}
    broken = saved(tmp_path / "ck", **how)
    if origin != "disk":
        broken = uploaded(servers[origin], broken, f"{origin}://bkt/ck")
    ended = surgery("rescue", broken, f"{target}://bkt/runs/new")
    assert ended.code == 0, ended.err
    assert f"rescued: 3 leaves in {target}://bkt/runs/new" in ended.out
    restored = _restored(servers[target], "runs/new", tmp_path)
    np.testing.assert_array_equal(restored["params"]["w"], TREE["params"]["w"])
    assert restored["opt_state"]["count"] == 3
    assert {name.split("/")[1] for name in servers[target].names("runs/")} == {"new"}


def test_after_a_rescue_that_was_killed_behind_its_mark_clean_is_named(service, tmp_path, surgery):
    """Its result is whole, and its lock stands: that alone goes."""
    there = uploaded(service, saved(tmp_path / "ck"), f"{service.root}/ck")
    new = f"{service.root}/new"
    assert surgery("rescue", there, new).code == 0
    whole = {name: service.content(name) for name in service.names("new/")}
    here = Owner.here()
    dead = msgspec.to_builtins(Owner(here.host, here.machine, 2**22 - 1, "1"))
    said = {"run": "x", "builds": new, "replaces": False, **dead}
    service.put("bkt", ".new.surgery-tmp-lock", json.dumps(said).encode())

    ended = surgery("rescue", there, new)

    assert ended.code == 2
    assert "`surgery clean " in ended.err
    assert "--force" not in ended.err
    assert surgery("clean", new).code == 0
    assert service.names(".new") == []
    assert {name: service.content(name) for name in service.names("new/")} == whole
    assert "exists" in surgery("rescue", there, new).err


@pytest.mark.parametrize("is_marked", [True, False])
def test_inspect_and_rescue_say_the_same_of_a_lost_item(surgery, service, tmp_path, is_marked):
    """A folder that is empty is none there: its mark is left, or nothing."""
    run, trees = tmp_path / "run", {"state": 16, "ema": 4}
    items = {
        name: ocp.args.StandardSave({f"w{n}": np.full(3, n, np.float32) for n in range(count)})
        for name, count in trees.items()
    }
    with ocp.CheckpointManager(run) as manager:
        for number in (20, 30):
            manager.save(number, args=ocp.args.Composite(**items))
        manager.wait_until_finished()
    there = uploaded(service, run / "20", f"{service.root}/run/20")
    there = uploaded(service, run / "30", f"{service.root}/run/30")
    for key in service.names("run/30/state/"):
        if not (is_marked and key.endswith("commit_success.txt")):
            service.remove(key)
    lost = "'state' (16 leaves in step 20) is lost as a whole"
    looked = surgery("inspect", there)
    if is_marked:
        assert looked.code == 3
        assert f"would find 4 of 4 leaves, and {lost}" in " ".join(looked.err.split())
    else:
        assert "recorded but not there: 'state'" in " ".join(looked.out.split())
    found = surgery("rescue", there)
    assert f"4 of 4 leaves whole, 0 partly, 0 lost; {lost}" in " ".join(found.out.split())
