"""A service that never comes to an end of what it says is told so, not listened to for ever."""

import json
import os
import re
import subprocess
import sys

import pytest

from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.store import filesystem
from tests.buckets.server import Faults

PAGES = 40
"""More than any of these may be asked for."""


def _another(server, answered):
    """Let a function change answers: it is given what is asked, and status, headers and body.

    Whatever page is asked for, it is the first.
    """
    answer = server.answer
    asked, first = [], {}

    async def changed(request):
        asked.append(request)
        assert len(asked) < PAGES
        of = request.query.get("prefix"), request.query.get("delimiter")
        if not {"pageToken", "continuation-token"} & request.query.keys():
            first[of] = await answer(request)
        return answered(request, first[of])

    return changed


def _with_token(token):
    """That there is a page more: always the same one, or one of a few in turn."""

    def answered(request, found):
        status, headers, body = found
        if request.kind != "list":
            return found
        if body.startswith(b"{"):
            return (
                status,
                headers,
                json.dumps({**json.loads(body), "nextPageToken": token()}).encode(),
            )
        text = re.sub(r"<IsTruncated>.*?</IsTruncated>", "", body.decode())
        more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{token()}</NextContinuationToken>"
        return (
            status,
            {},
            text.replace("</ListBucketResult>", f"{more}</ListBucketResult>").encode(),
        )

    return answered


@pytest.mark.parametrize("tokens", ["a", "abc"], ids=["the same page", "pages in turn"])
@pytest.mark.parametrize(
    "look", [filesystem.entries, lambda place: list(filesystem.below(place))], ids=["one", "below"]
)
def test_a_list_that_goes_round_ends_with_what_to_look_at(
    service, surgery, monkeypatch, look, tokens
):
    for n in range(3):
        service.put("bkt", f"runs/ck/{n}/x", b"")
    given = iter(tokens * PAGES)
    monkeypatch.setattr(service, "answer", _another(service, _with_token(lambda: next(given))))
    place = BucketPath(f"{service.root}/runs")
    filesystem.forget(place)
    with pytest.raises(OSError, match="its list has no end") as failed:
        look(place)
    assert failed.value.filename.startswith(f"{service.root}/runs")
    ended = surgery("inspect", f"{service.root}/runs/ck")
    assert ended.code == 3
    assert "its list has no end" in ended.err
    assert "an emulator, or a proxy between" in ended.err


def _in_steps(server, monkeypatch, copied):
    """Let a copy need as many steps as there are numbers in ``copied``: of the bytes that are copied by then."""
    copy, steps = server._copy, iter(copied)

    def step(*asked):
        so_far = next(steps, None)
        if so_far is None:
            return copy(*asked)
        said = {"done": False, "rewriteToken": "t", "totalBytesRewritten": str(so_far)}
        return 200, {"Content-Type": "application/json"}, json.dumps(said).encode()

    monkeypatch.setattr(server, "_copy", step)
    filesystem.forget(BucketPath("gs://bkt/a"))


def test_a_copy_that_gets_no_further_ends(bucket, monkeypatch):
    bucket.put("bkt", "a", b"large")
    _in_steps(bucket, monkeypatch, [3] * PAGES)
    with pytest.raises(OSError, match="no more is copied"):
        filesystem.copy(BucketPath("gs://bkt/a"), BucketPath("gs://bkt/b"))
    assert bucket.names() == ["a"]


def test_a_copy_in_many_steps_comes_to_its_end(bucket, monkeypatch):
    bucket.put("bkt", "a", b"large")
    _in_steps(bucket, monkeypatch, range(1, PAGES))
    filesystem.copy(BucketPath("gs://bkt/a"), BucketPath("gs://bkt/b"))
    assert bucket.content("b") == b"large"


SILENT = """
import sys
from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.store import filesystem
import tensorstore as ts

spec = filesystem.kvstore(BucketPath(sys.argv[1]))
once = ts.Context({f"{spec['driver']}_request_retries": {"max_retries": 1}})
print(ts.KvStore.open(spec, context=once).result().read("a").exception())
"""


def test_a_service_that_takes_requests_and_never_answers_is_not_waited_for(service):
    """By itself TensorStore waits, and no signal ends that."""
    service.put("bkt", "ck/a", b"x")
    service.faults = Faults(are_held=lambda kind: kind in ("read", "look up"))
    command = [sys.executable, "-c", SILENT, f"{service.root}/ck"]
    env = {**os.environ, "TENSORSTORE_CURL_LOW_SPEED_TIME_SECONDS": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=True)
    assert "Operation too slow" in done.stdout, done.stderr


@pytest.mark.parametrize(("given", "holds"), [(None, "30"), ("7", "7")])
def test_half_a_minute_of_silence_is_enough_unless_the_user_says_more(monkeypatch, given, holds):
    name = "TENSORSTORE_CURL_LOW_SPEED_TIME_SECONDS"
    monkeypatch.setenv(name, given or "")  # so that it is put back
    if given is None:
        monkeypatch.delenv(name)
    filesystem.kvstore(BucketPath("s3://bkt/ck"))
    assert os.environ[name] == holds
