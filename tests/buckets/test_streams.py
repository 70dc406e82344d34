"""What passes from one service to another, and what is too large for one request."""

import itertools
import re
import time

import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.inputs.buckets import path_at
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.amazon_s3 import AmazonS3
from surgery_cli.store.filesystem.request_counts import Asked, requests_so_far
from tests.buckets.checkpoints import RESCALED, saved, uploaded
from tests.buckets.server import PATIENCE_SECONDS, Faults

LARGE = bytes(range(256)) * (11 << 12)


@pytest.fixture
def small_requests(monkeypatch):
    monkeypatch.setattr(AmazonS3, "largest", 6 << 20)
    monkeypatch.setattr(AmazonS3, "part", 5 << 20)


def test_what_is_too_large_for_one_request_comes_in_parts(s3, small_requests):
    place, copied = path_at("s3://bkt/a b+é/large"), path_at("s3://bkt/copied")
    filesystem.put(place, LARGE)
    s3.log.clear()
    filesystem.copy(place, copied)
    assert s3.content("copied") == LARGE
    assert s3.kinds()["copy"] == 3
    assert sum(len(request.body) for request in s3.log if request.kind == "copy") == 0
    assert s3.uploads() == []


@pytest.mark.parametrize("size", [1, 6 << 20, (6 << 20) + 1, 10 << 20, 11_000_000], ids=str)
def test_what_is_put_and_copied_in_parts_is_counted_as_it_is_made(service, small_requests, size):
    """Each was one request, however many parts it took."""
    content, before = bytes(size), requests_so_far()
    filesystem.put(path_at(f"{service.root}/large"), content)
    filesystem.copy(path_at(f"{service.root}/large"), path_at(f"{service.root}/copied"))
    counted, seen = requests_so_far() - before, service.kinds()
    assert service.content("copied") == content
    assert counted.copied == Asked(seen["copy"], size)
    assert counted.written == Asked(seen["write"], size)
    in_parts = service.scheme == "s3" and size > 6 << 20
    assert seen["copy"] == (-(-size // (5 << 20)) if in_parts else 1)


@pytest.mark.parametrize("size", [8 << 20, 20 << 20, 45_000_000], ids=str)
@pytest.mark.parametrize("length", [3_000_000, 9_000_000, 20 << 20], ids=str)
def test_what_is_made_piece_by_piece_is_counted_as_it_is_sent(service, size, length):
    """However long the pieces are that a writer has: they went as they came, and every 8 MiB counted as one."""
    place, content = path_at(f"{service.root}/large"), bytes(range(256)) * (size >> 8)
    before = requests_so_far()
    with filesystem.create(place) as file:
        for start in range(0, len(content), length):
            file.write(content[start : start + length])
    counted = (requests_so_far() - before).written
    assert service.content("large") == content
    sent = [request for request in service.log if request.kind == "write"]
    assert counted.requests == len(sent)
    assert counted.bytes == len(content)
    assert max(len(request.body) for request in sent) == 8 << 20


@pytest.mark.parametrize("kind", ["503", "reset", "cut", "lost"])
def test_what_is_large_is_sent_again_whole(bucket, kind):
    place = path_at("gs://bkt/large")
    bucket.faults = Faults(kind, every=2, among=lambda request: request == "write")
    bucket._served = itertools.count(2)
    filesystem.put(place, LARGE)
    bucket.faults = Faults()
    assert filesystem.read(place) == LARGE
    assert bucket.kinds()["write"] == 2


def test_parts_of_what_fails_do_not_stay(s3, small_requests):
    place = path_at("s3://bkt/large")
    filesystem.put(place, LARGE)
    s3.faults = Faults("403", every=3, among=lambda kind: kind == "copy")
    with pytest.raises(OSError, match="S3 does not"):
        filesystem.copy(place, path_at("s3://bkt/copied"))
    s3.faults = Faults()
    assert (s3.names(), s3.uploads()) == (["large"], [])


def test_an_object_that_is_replaced_meanwhile_is_not_copied_in_parts(s3, small_requests):
    place = path_at("s3://bkt/large")
    filesystem.put(place, LARGE)
    assert filesystem.size(place) == len(LARGE)
    s3.put("bkt", "large", LARGE[::-1])
    with pytest.raises(OSError, match="was replaced"):
        filesystem.copy(place, path_at("s3://bkt/copied"))
    assert (s3.names(), s3.uploads()) == (["large"], [])


MANY = {"params": {name: np.arange(12, dtype=np.float32) for name in ("w", "a1", "a2", "a3")}}


@pytest.mark.parametrize(("source", "target"), [("gs", "s3"), ("s3", "disk"), ("gs", "disk")])
def test_many_objects_stream_at_once_between_services(
    bucket, s3, tmp_path, monkeypatch, source, target
):
    here = saved(tmp_path / "ck", MANY, use_ocdbt=False)
    server = bucket if source == "gs" else s3
    there = uploaded(server, here, f"{server.root}/ck")
    new = str(tmp_path / "new") if target == "disk" else f"{target}://bkt/new"
    kind_of, seen, since = server.kind_of, [0], time.monotonic()

    def kind(request):
        is_chunk = re.search(r"params\.a\d(/|%2F)0", request.target) is not None
        return "chunk" if is_chunk and kind_of(request) == "read" else kind_of(request)

    def is_alone(kind):
        """Hold what is read of untouched chunks until two are on their way; give up where that never is."""
        if kind != "chunk":
            return False
        waiting = sum(r.status is None and r.kind == "chunk" for r in server.log)
        seen[0] = max(seen[0], waiting)
        return seen[0] < 2 and time.monotonic() - since < PATIENCE_SECONDS

    monkeypatch.setattr(server, "kind_of", kind)
    server.faults = Faults(are_held=is_alone)
    surgery.apply(there, new, RESCALED)
    server.faults = Faults()
    assert seen[0] >= 2
    if target == "disk":
        with ocp.PyTreeCheckpointer() as checkpointer:
            tree = checkpointer.restore(new)["params"]
        np.testing.assert_array_equal(tree["w"], 2 * MANY["params"]["w"])
        np.testing.assert_array_equal(tree["a1"], MANY["params"]["a1"])
    assert len(surgery.diff(there, new).changed) == 1
