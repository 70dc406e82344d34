"""Whose answers are lost or cut takes what it has made for its own, and gives up on what never stays."""

import itertools
from types import SimpleNamespace

import gcsfs.retry
import pytest

from surgery_cli import surgery
from surgery_cli.errors import SurgeryError
from surgery_cli.inputs.buckets import BucketPath, path_at
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem import bucket_guard, bucket_locks
from surgery_cli.store.filesystem.object_service import STREAMED_BYTES
from tests.buckets.checkpoints import MARK, RESCALED, saved, uploaded
from tests.buckets.server import Faults
from tests.buckets.test_destinations import check


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """No pauses of the client's between its tries."""

    async def sleep(_):
        """At once."""

    monkeypatch.setattr(gcsfs.retry, "asyncio", SimpleNamespace(sleep=sleep))


def _begin_with(server, name, faults):
    """Let faults begin once an object of that name was written."""

    def begin(request):
        if request.kind in ("write", "copy") and f"{request.target}{request.query}".count(name):
            server.before = lambda request: None
            server._served = itertools.count(1)
            server.faults = faults

    server.before = begin


@pytest.mark.sampled(2)
@pytest.mark.covers(1)
@pytest.mark.parametrize("kind", ["cut", "lost", "503"])
@pytest.mark.parametrize("every", range(2, 8))
def test_a_commit_ends_whichever_of_its_requests_fail(service, tmp_path, every, kind):
    there = uploaded(service, saved(tmp_path / "ck"), f"{service.root}/ck")
    _begin_with(service, "new/surgery.json", Faults(kind, every=every))
    surgery.apply(there, f"{service.root}/new", RESCALED)
    assert service.faults.every == every
    service.faults = Faults()
    check(service, "new", tmp_path)
    assert not [name for name in service.names() if "surgery-tmp" in name]


@pytest.fixture
def marked(bucket, monkeypatch):
    """The server, which calls copies of marks so."""
    kind_of = bucket.kind_of
    is_mark = f"/o/new%2F{MARK}"
    monkeypatch.setattr(
        bucket,
        "kind_of",
        lambda r: "mark" if "rewriteTo" in r.path and r.path.endswith(is_mark) else kind_of(r),
    )
    return bucket


def test_a_mark_of_which_each_answer_is_cut_is_known_for_its_own(marked, tmp_path):
    """Each second copy is made and not told of; the one between is refused, as the first has come."""
    there = uploaded(marked, saved(tmp_path / "ck"), "gs://bkt/ck")
    marked._served = itertools.count(0)
    marked.faults = Faults("cut", every=2, among=lambda kind: kind == "mark")
    surgery.apply(there, "gs://bkt/new", RESCALED)
    marked.faults = Faults()
    check(marked, "new", tmp_path)
    copies = [r.status for r in marked.log if r.kind == "mark"]
    assert copies == [200, 412, 200, 412]


def test_where_something_else_comes_each_time_it_gives_up_and_says_so(
    marked, tmp_path, monkeypatch
):
    there = uploaded(marked, saved(tmp_path / "ck"), "gs://bkt/ck")
    paused = []
    monkeypatch.setattr(bucket_guard, "time", SimpleNamespace(sleep=paused.append))

    def come_between(request):
        if request.kind == "mark":
            marked.put("bkt", f"new/{MARK}", b"another's")

    marked.before = come_between
    with pytest.raises(SurgeryError) as failed:
        surgery.apply(there, "gs://bkt/new", RESCALED)
    assert failed.value.exit_code == 4
    assert "something else stood there each time" in failed.value.problems[0].why
    assert 50 < sum(paused) < 70
    assert not [name for name in marked.names() if "surgery-tmp" in name]


def test_what_another_run_has_made_is_never_taken_for_its_own(bucket):
    """Not even if it holds the same: whoever made it may still remove it."""
    place = BucketPath("gs://bkt/new/x")
    with bucket_locks.guarded(place.parent, lambda: None):
        filesystem.exists(place)
        theirs = bucket.put("bkt", "new/x", b"the same")["generation"]
        filesystem.put(place, b"the same")
    assert str(bucket.version("new/x")) != theirs


@pytest.fixture
def place(service):
    """A place in a destination that this run has locked."""
    place = path_at(f"{service.root}/new/x")
    with bucket_locks.guarded(place.parent, lambda: None):
        yield place


def test_what_a_run_has_made_is_removed_without_a_look(service, place):
    filesystem.put(place, b"ours")
    service.log.clear()
    filesystem.delete(place)
    assert dict(service.kinds()) == {"delete": 1}
    assert service.names() == []


def test_what_has_come_in_the_place_of_what_a_run_has_made_is_not_removed(service, place):
    filesystem.put(place, b"ours")
    service.put("bkt", "new/x", b"another's")
    filesystem.delete(place)
    assert service.names() == ["new/x"]


def test_what_a_run_has_made_anew_piece_by_piece_is_removed(service, place):
    filesystem.put(place, b"ours")
    filesystem.exists(place)
    filesystem.write(place, [b"1" * STREAMED_BYTES, b"2"])
    filesystem.delete(place)
    assert service.names() == []


PIECES = [b"1" * STREAMED_BYTES, b"2" * 1000]


@pytest.mark.parametrize("kind", ["cut", "lost"])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_large_object_is_there_whichever_of_its_answers_is_lost(bucket, kind, at):
    """Also the last: the piece is sent again, and refused, as the whole object stands by then."""
    bucket._served = itertools.count(9 - at)
    bucket.faults = Faults(kind, every=8)
    with filesystem.create(path_at("gs://bkt/new/x")) as file:
        for piece in PIECES:
            file.write(piece)
    bucket.faults = Faults()
    states = [r.status for r in bucket.log if r.kind == "write"]
    assert at < 3 or states[-1] == 412
    assert bucket.content("new/x") == b"".join(PIECES)


@pytest.mark.parametrize("content", [b"x" * sum(map(len, PIECES)), b"another's"])
def test_a_large_object_of_somebody_else_is_not_taken_for_the_own(bucket, content):
    def before(request):
        if "upload_id" in request.query:
            bucket.before = lambda request: None
            bucket.put("bkt", "new/x", content)

    bucket.before = before
    file = filesystem.create(path_at("gs://bkt/new/x"))
    for piece in PIECES:
        file.write(piece)
    with pytest.raises(FileExistsError):
        file.close()
    assert bucket.content("new/x") == content
