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
from surgery_cli.store.filesystem.amazon_s3 import AmazonS3
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


@pytest.mark.parametrize("content", ["another's", "its own"])
def test_where_a_mark_comes_each_time_it_gives_up_and_says_so(
    marked, tmp_path, monkeypatch, content
):
    """What is not of this run stays as it is; what is, may be a late answer of a service that is slow."""
    there = uploaded(marked, saved(tmp_path / "ck"), "gs://bkt/ck")
    paused = []
    monkeypatch.setattr(bucket_guard, "time", SimpleNamespace(sleep=paused.append))

    def come_between(request):
        if request.kind == "mark":
            own = marked.content(".new.surgery-tmp-lock")
            marked.put("bkt", f"new/{MARK}", own if content == "its own" else b"another's")

    marked.before = come_between
    if content == "its own":
        surgery.apply(there, "gs://bkt/new", RESCALED)
        assert paused == [0.0]
        return
    with pytest.raises(SurgeryError) as failed:
        surgery.apply(there, "gs://bkt/new", RESCALED)
    assert failed.value.exit_code == 2
    assert f"'gs://bkt/new/{MARK}' stood there otherwise" in failed.value.problems[0].why
    assert not paused
    assert [name for name in marked.names() if "new" in name] == [f"new/{MARK}"]


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


def losing(server, kind, at):
    """Of every sixteen answers this one is lost."""
    server._served = itertools.count(17 - at)
    server.faults = Faults(kind, every=16)


def written_in_pieces(address):
    with filesystem.create(path_at(address)) as file:
        for piece in PIECES:
            file.write(piece)


@pytest.mark.parametrize("kind", ["cut", "lost"])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_large_object_is_there_whichever_of_its_answers_is_lost(bucket, kind, at):
    """Also the last: the piece is sent again, and refused, as the whole object stands by then."""
    losing(bucket, kind, at)
    written_in_pieces("gs://bkt/new/x")
    bucket.faults = Faults()
    states = [r.status for r in bucket.log if r.kind == "write"]
    assert at < 3 or states[-1] == 412
    assert bucket.content("new/x") == b"".join(PIECES)


AGAIN = {"as before": None, "no such upload": 404, "something stands there": 412}
"""What services that speak S3 say to who asks once more whether an upload is whole, which is."""


@pytest.fixture(params=AGAIN)
def s3_again(request, s3, monkeypatch):
    done, answer = set(), s3.answer

    async def answered(asked):
        is_end = asked.method == "POST" and "uploadId" in asked.query
        if is_end and asked.query["uploadId"] in done and AGAIN[request.param]:
            return s3.refusal(AGAIN[request.param], "injected")
        got = await answer(asked)
        done.update({asked.query["uploadId"]} if is_end else ())
        return got

    monkeypatch.setattr(s3, "answer", answered)
    return s3


@pytest.fixture
def made_in_parts(monkeypatch):
    """What takes more than a request takes them from 6 MB on."""
    monkeypatch.setattr(AmazonS3, "largest", 6 << 20)
    monkeypatch.setattr(AmazonS3, "part", 5 << 20)


def put_in_parts(address):
    filesystem.put(path_at(address), b"".join(PIECES), exclusively=True)


def copied_in_parts(address):
    there = path_at(address).parent.parent / "there"
    filesystem.copy(there, path_at(address))


@pytest.mark.usefixtures("made_in_parts")
@pytest.mark.parametrize("make", [written_in_pieces, put_in_parts, copied_in_parts])
@pytest.mark.parametrize("kind", ["cut", "lost"])
@pytest.mark.parametrize("at", range(1, 6))
def test_a_large_object_is_there_whatever_is_said_to_who_asks_again(s3_again, make, kind, at):
    s3_again.put("bkt", "there", b"".join(PIECES))
    filesystem.exists(path_at("s3://bkt/there"))
    losing(s3_again, kind, at)
    make("s3://bkt/new/x")
    s3_again.faults = Faults()
    assert s3_again.content("new/x") == b"".join(PIECES)


@pytest.mark.parametrize("make", [written_in_pieces, put_in_parts])
@pytest.mark.parametrize(("status", "refusal"), [(412, FileExistsError), (404, FileNotFoundError)])
@pytest.mark.usefixtures("made_in_parts")
def test_what_stands_where_an_upload_could_not_end_is_somebody_elses(
    s3, monkeypatch, make, status, refusal
):
    """Of the same size: it is told by what the parts hold. (S3 refuses as it was asked to, moto does not.)"""
    theirs = b"x" * sum(map(len, PIECES))
    answer = s3.answer

    async def answered(asked):
        if asked.method == "POST" and "uploadId" in asked.query:
            assert asked.headers["if-none-match"] == "*"
            s3.put("bkt", "new/x", theirs)
            return s3.refusal(status, "injected")
        return await answer(asked)

    monkeypatch.setattr(s3, "answer", answered)
    with pytest.raises(refusal):
        make("s3://bkt/new/x")
    assert s3.content("new/x") == theirs
    assert s3.uploads() == []


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
