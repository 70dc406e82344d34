"""A result that was brought from a disk to a bucket, or back, is what its run has made, if it holds the same."""

import json
import re

import pytest

from tests.buckets.checkpoints import saved, uploaded


def spoken(record, form):
    """The record as it is, or as an earlier version wrote it, without its own digest, which that had as well."""
    if form == "before":
        found = json.loads(record.read_bytes())
        found["stands"] = {n: re.sub(r"^\d+ ", "", mark) for n, mark in found["stands"].items()}
        found.pop("content", None)
        record.write_text(json.dumps(found))


@pytest.mark.parametrize("form", ["now", "before"])
def test_what_was_uploaded_as_it_is_is_done(service, surgery, tmp_path, form):
    source = uploaded(service, saved(tmp_path / "ck"), f"{service.root}/ck")
    here, there = tmp_path / "new", f"{service.root}/new"
    words = ("rescale", source, "NEW", "params/w", "--by", "2", "--optimizer", "keep", "--resume")

    def again(new):
        return surgery(*(new if word == "NEW" else word for word in words))

    assert again(here).code == 0
    spoken(here / "surgery.json", form)
    uploaded(service, here, there)
    ended = again(there)
    assert ended.code == 0, ended.err
    assert "already done" in ended.out
    assert again(here).code == 0
    file = here / "_CHECKPOINT_METADATA"
    file.write_bytes(bytes(len(file.read_bytes())))
    assert again(here).code == 2
    if form == "now":
        service.put("bkt", "new/_CHECKPOINT_METADATA", file.read_bytes() + b" ")
        ended = again(there)
        assert ended.code == 2, ended.out


@pytest.mark.parametrize("name", ["_CHECKPOINT_METADATA", "data"])
def test_what_another_file_of_the_same_size_has_replaced_is_not_done(
    bucket, surgery, tmp_path, name
):
    source = uploaded(bucket, saved(tmp_path / "ck"), f"{bucket.root}/ck")
    edit = ("rescale", source, f"{bucket.root}/new", "params/w", "--by", "2")
    words = (*edit, "--optimizer", "keep", "--resume")
    assert surgery(*words).code == 0
    assert "already done" in surgery(*words).out
    data = next(one for one in bucket.names("new/") if "/d/" in one)
    key = data if name == "data" else f"new/{name}"
    before = bucket.content(key)
    bucket.put("bkt", key, bytes([before[0] ^ 1]) + before[1:])
    ended = surgery(*words)
    assert ended.code == 2, ended.out
    assert f"'{key.removeprefix('new/')}' is not what it was made with" in ended.err
    bucket.put("bkt", key, before)  # another object, which holds what the run has made
    assert "already done" in surgery(*words).out


def test_what_came_from_a_bucket_is_held_against_what_that_told(bucket, surgery, tmp_path):
    """A service tells an MD5, and a disk nothing."""
    source = uploaded(bucket, saved(tmp_path / "ck"), f"{bucket.root}/ck")
    here, there = tmp_path / "new", f"{bucket.root}/new"
    words = ("rescale", source, "NEW", "params/w", "--by", "2", "--optimizer", "keep", "--resume")

    def again(new):
        return surgery(*(new if word == "NEW" else word for word in words))

    assert again(there).code == 0
    for name in bucket.names("new/"):
        file = here / name.removeprefix("new/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bucket.content(name))
    assert "already done" in again(here).out
    file = here / "_CHECKPOINT_METADATA"
    file.write_bytes(bytes(len(file.read_bytes())))
    assert again(here).code == 2
