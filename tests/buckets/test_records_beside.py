"""The record of a single file stands beside it: what stands there and is none of what is replaced stays."""

import json
import re

import pytest

from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.store.filesystem.bucket_locks import lock_of
from surgery_cli.store.filesystem.names import name_of_record
from tests.buckets.checkpoints import saved, uploaded
from tests.buckets.test_refused_for_good import edit, end_its_run

FORMS = ("msgpack", "npz", "safetensors")
THEIRS = b"theirs"


@pytest.fixture
def source(service, tmp_path):
    return uploaded(service, saved(tmp_path / "ck", use_ocdbt=False), f"{service.root}/ck")


def others(service):
    return {n: service.content(n) for n in service.names() if not n.startswith("ck/")}


def lock_name(service, new):
    return str(lock_of(BucketPath(new))).removeprefix(f"{service.root}/")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("stands", ["nothing", "a folder"])
@pytest.mark.parametrize("options", [(), ("--force",)], ids=["", "force"])
@pytest.mark.parametrize("place", ["bucket", "disk"])
def test_what_stands_where_the_record_would_is_refused_before_any_work(
    service, source, surgery, tmp_path, place, options, stands, form
):
    """A fresh export overwrote it; one that took the place of a folder had done all its work, and stopped half way."""
    new = f"{service.root if place == 'bucket' else tmp_path}/new.{form}"
    if stands == "a folder":
        folder = saved(tmp_path / (f"new.{form}" if place == "disk" else "old"), use_ocdbt=False)
        if place == "bucket":
            uploaded(service, folder, new)
    beside = tmp_path / name_of_record(f"new.{form}")
    if place == "bucket":
        service.put("bkt", beside.name, THEIRS)
    else:
        beside.write_bytes(THEIRS)
    before = (others(service), sorted(tmp_path.rglob("*")))
    for more in (("--dry-run",), ()):
        refused = surgery("export", source, new, "--to", form, *options, *more)
        assert refused.code == 2, (refused.out, refused.err)
        if stands == "nothing" or options:
            assert f"{beside.name}' exists, where the record of the result would stand" in (
                refused.err
            )
    assert (others(service), sorted(tmp_path.rglob("*"))) == before
    assert place == "bucket" or beside.read_bytes() == THEIRS
    if place == "bucket" and (stands == "nothing" or options):
        told = re.search(r"`(?:aws s3|gcloud storage) rm (\S+)`", refused.err)
        service.remove(told[1].removeprefix(f"{service.root}/"))
        ended = surgery("export", source, new, "--to", form, *options)
        assert ended.code == 0, ended.err


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", ["bucket", "disk"])
def test_the_record_of_what_was_removed_makes_way(service, source, surgery, tmp_path, place, form):
    """Scripts remove a file and export it again; on a disk, what comes meanwhile is still seen."""
    new = f"{service.root if place == 'bucket' else tmp_path}/new.{form}"
    assert not surgery("export", source, new, "--to", form).code
    if place == "bucket":
        service.remove(f"new.{form}")
    else:
        (tmp_path / f"new.{form}").unlink()
    for more in (("--dry-run",), ()):
        again = surgery("export", source, new, "--to", form, *more)
        assert not again.code, again.err
        assert f"{name_of_record(f'new.{form}')}' is replaced" in again.out
    assert surgery("verify", new).code == 0


@pytest.mark.parametrize("form", FORMS)
def test_the_record_of_what_is_replaced_goes_with_it(service, source, surgery, tmp_path, form):
    for new in (f"{service.root}/new.{form}", tmp_path / f"new.{form}"):
        words = ("export", source, new, "--to", form)
        for options in ((), ("--force",)):
            ended = surgery(*words, *options)
            assert ended.code == 0, ended.err
        assert surgery("verify", new).code == 0


def test_so_does_that_of_a_directory_which_cannot_hold_one(service, surgery, tmp_path):
    """Without metadata, a file in it would be a leaf: in a bucket it stopped half way, on a disk it was set aside."""
    bare = saved(tmp_path / "ck", use_ocdbt=False)
    for name in ("_METADATA", "_CHECKPOINT_METADATA"):
        (bare / name).unlink()
    there = uploaded(service, bare, f"{service.root}/ck")
    for source, new in ((there, f"{service.root}/new"), (bare, tmp_path / "new")):
        for options in ((), ("--force",)):
            ended = surgery(*edit(source, new, *options))
            assert ended.code == 0, ended.err
            assert "something else" not in ended.out + ended.err
    assert not service.names("new.")
    assert service.names(".new") == [".new.surgery.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".new.surgery.json", "ck", "new"]


@pytest.mark.parametrize("is_own", [True, False])
def test_clean_removes_the_record_of_a_run_and_no_other(service, source, surgery, is_own):
    """Of a run into nothing that was killed before its lock went."""
    new, record = f"{service.root}/new.msgpack", ".new.msgpack.surgery.json"
    assert surgery("export", source, new, "--to", "msgpack").code == 0
    if not is_own:
        service.put("bkt", record, THEIRS)
    lock = lock_name(service, new)
    said = {"run": "x", "builds": new, "replaces": False, "machine": "", "host": "", "boot": ""}
    service.put("bkt", lock, json.dumps(said | {"pid": 1, "started": "1"}).encode())
    end_its_run(service, lock)
    cleaned = surgery("clean", new, "--stale")
    assert cleaned.code == 0, (cleaned.out, cleaned.err)
    assert others(service) == ({} if is_own else {record: THEIRS})
    assert (f"{record}' stays" in cleaned.out) != is_own


@pytest.mark.parametrize("form", FORMS)
def test_clean_replaces_no_record_that_came_since(
    service, source, surgery, monkeypatch, tmp_path, form
):
    """Half replaced, a folder's place was taken by a file: of what stood beside it nothing was looked at."""
    new, record = f"{service.root}/new.{form}", name_of_record(f"new.{form}")
    uploaded(service, saved(tmp_path / "old", use_ocdbt=False), new)
    answer = service.answer

    async def refused(request):
        is_record = f"{form}.surgery.json" in f"{request.path} {request.query}"
        if service.kind_of(request) == "copy" and is_record:
            return service.refusal(403, "no")
        return await answer(request)

    with monkeypatch.context() as patch:
        patch.setattr(service, "answer", refused)
        cut = surgery("export", source, new, "--to", form, "--force")
    assert "could not be replaced whole" in cut.err, cut.err
    end_its_run(service, lock_name(service, new))
    service.put("bkt", record, THEIRS)
    before = others(service)
    for options in (["--dry-run"], []):
        cleaned = surgery("clean", new, *options)
        assert cleaned.code == 2, cleaned.out
        assert f"{record}' is not of that run" in cleaned.err
    assert others(service) == before
    service.remove(record)
    assert surgery("clean", new).code == 0
    assert sorted(others(service)) == sorted([f"new.{form}", record])
    assert surgery("verify", new).code == 0
