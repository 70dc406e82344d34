"""Many hosts on a bucket: each process writes objects of its own, and the mark comes last, or never."""

import json
import random
import signal
import time
from urllib.parse import unquote

import numpy as np
import pytest

from surgery_cli import surgery
from tests.buckets.checkpoints import MARK, SAMPLES, uploaded
from tests.buckets.server import Faults
from tests.buckets.test_requests import logged
from tests.buckets.test_writing import restored
from tests.hosts.companies import Processes, apply_together, assert_same_bits
from tests.hosts.test_same_result import plan

CAST = [("cast", {"at": "params", "to": "bfloat16"})]


def names(server):
    return {name for name in server.buckets["bkt"] if not name.startswith("ck/")}


@pytest.fixture
def there(bucket):
    return uploaded(bucket, SAMPLES / "digits_standard", "gs://bkt/ck")


@pytest.mark.parametrize(
    "fault",
    [Faults(), pytest.param(Faults("503", every=6), marks=pytest.mark.check_all)],
    ids=["whole", "one-in-six-fails"],
)
def test_the_result_is_that_of_one_process(bucket, there, fault):
    surgery.apply(there, "gs://bkt/one", plan(CAST))
    bucket.faults = fault
    apply_together(3, there, "gs://bkt/many", lambda: plan(CAST))
    bucket.faults = Faults()
    assert_same_bits(restored("gs://bkt/many"), restored("gs://bkt/one"))
    assert surgery.verify("gs://bkt/many").agrees
    assert any("ocdbt.process_2" in name for name in names(bucket))
    assert not any("surgery-tmp" in name for name in names(bucket))


def test_the_report_counts_what_all_processes_asked_for(bucket, there):
    bucket.log.clear()
    words = ("cast", there, "gs://bkt/new", "params", "--to", "bfloat16", "--json")
    first, second = Processes(2, *words, environment=bucket.environment).ended()
    assert (first.code, second.code) == (0, 0), (first, second)
    told, seen = json.loads(first.out)["requests"], logged(bucket)
    assert [*told["written"].values()] == seen.written
    assert told["copied"]["requests"] == seen.copied[0]
    assert told["read"]["requests"] == seen.read[0]


@pytest.mark.parametrize("killed", [1, pytest.param(0, marks=pytest.mark.check_all)])
def test_a_process_that_dies_leaves_nothing_that_is_taken_for_whole(bucket, there, killed):
    bucket.faults = Faults(latency=0.02)
    processes = Processes(
        2,
        "cast",
        there,
        "gs://bkt/new",
        "params",
        "--to",
        "bfloat16",
        environment=bucket.environment,
    )
    end = time.monotonic() + 300
    while not names(bucket):
        assert time.monotonic() < end
        time.sleep(0.005)
    time.sleep(random.Random(killed).uniform(0, 0.3))
    processes.end(killed, signal.SIGKILL)
    ended = processes.ended()
    bucket.faults = Faults()
    bucket.settle()
    if f"new/{MARK}" in names(bucket):  # it had done its part
        assert surgery.verify("gs://bkt/new").agrees
        return
    assert ended[1 - killed].code == 143, ended
    if killed:
        assert not names(bucket)
        return
    assert "surgery clean gs://bkt/new" in ended[1].err
    surgery.clean("gs://bkt/new")
    assert not names(bucket)
    surgery.apply(there, "gs://bkt/new", plan(CAST))
    assert restored("gs://bkt/new")["params"]["Dense_0"]["kernel"].dtype == np.dtype("bfloat16")


@pytest.mark.parametrize("moment", ["surgery.json", "_METADATA", "manifest.ocdbt"])
def test_who_is_asked_to_end_when_the_others_have_done_their_part_says_so(bucket, there, moment):
    """They wait for the result then: it is not that process 0 gives no sign of life."""
    processes = []

    def strike(request):
        target = unquote(request.path + request.query.get("name", ""))
        if request.kind != "read" and target.endswith(f"new/{moment}"):
            bucket.before = lambda _: None
            processes[0].end(0, signal.SIGTERM)

    bucket.before = strike
    words = ("cast", there, "gs://bkt/new", "params", "--to", "bfloat16")
    processes.append(Processes(2, *words, environment=bucket.environment))
    first, second = processes[0].ended()
    bucket.settle()
    assert (first.code, second.code) == (143, 143), (first, second)
    assert "nothing was left behind" in first.err
    assert "it was asked to end" in second.err
    assert "no sign of life" not in second.err
    assert not names(bucket)
