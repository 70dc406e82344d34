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
