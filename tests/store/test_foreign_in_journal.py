"""What other programs put where a journal is kept, or do to it, is not read as a part of it, and ends no command."""

import json

import numpy as np
import orbax.checkpoint as ocp
import pytest

from tests.buckets.checkpoints import uploaded
from tests.store.cutting import Runs

NAMES = [
    "Icon",
    ".DS_Store",
    "00000002 (copy)",
    "99999999x",
    "123456789",
    "²²²²²²²²",
    "below/00000009",
]
LINES = {
    "no UTF-8": b'{"type":"lost","what":"\xff"}',
    "too deep": b'{"type":"lost","other":' + b"[" * 100_000,
    "of another kind": b'{"type":"other"}',
    "no JSON": b"\0\0\0",
    "empty": b"",
}


@pytest.fixture(scope="module")
def run(google, amazon):
    with Runs("gcsfs", "s3fs") as runs:
        yield runs


@pytest.fixture
def source(tmp_path):
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(
            tmp_path / "ck", {"w": {name: np.arange(4096, dtype=np.float32) for name in "abcd"}}
        )
    return tmp_path / "ck"


def begun(run, source, new):
    words = ["rescale", source, new, "w", "--by", "2", "--quiet", "--resume"]
    ended = run(*words, cut=["entry+", 5, "SIGKILL"])
    assert ended["code"] == -9, ended["said"]
    return words


def check(run, words, new):
    """Whoever looks finds what was kept, and the same command goes on from it."""
    seen = run("clean", new, "--dry-run")
    assert (seen["code"], "it keeps what is done" in seen["said"]) == (0, True), seen["said"]
    went_on = run(*words, "--json")
    assert went_on["code"] == 0, went_on["said"]
    assert json.loads(went_on["said"])["taken_up_bytes"] > 0


def test_objects_of_other_names_are_no_lines(run, service, source):
    new = f"{service.root}/new"
    words = begun(run, uploaded(service, source, f"{service.root}/ck"), new)
    (first,) = [name for name in service.names() if name.endswith("-journal/00000001")]
    for name in NAMES:
        service.put("bkt", f"{first.removesuffix('00000001')}{name}", b"x")
    check(run, words, new)
    assert not [name for name in service.names() if "surgery-tmp" in name]


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_lines_that_nobody_wrote_say_nothing(run, source, tmp_path, line):
    words = begun(run, source, tmp_path / "new")
    (journal,) = tmp_path.glob(".new.surgery-tmp-*/.surgery-journal")
    for name in ("Icon", ".DS_Store"):
        journal.with_name(name).write_bytes(b"x")
    journal.write_bytes(journal.read_bytes() + b"\n" + line)
    check(run, words, tmp_path / "new")
    assert not [path for path in tmp_path.iterdir() if "surgery-tmp" in path.name]


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_nor_do_objects_that_nobody_wrote(run, bucket, source, line):
    new = f"{bucket.root}/new"
    words = begun(run, uploaded(bucket, source, f"{bucket.root}/ck"), new)
    (first,) = [name for name in bucket.names() if name.endswith("-journal/00000001")]
    bucket.put("bkt", f"{first.removesuffix('1')}7", line)
    check(run, words, new)
