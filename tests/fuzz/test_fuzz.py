"""A few inputs of every kind, by the machine that reads a million of them (`make fuzz N=1000000`)."""

import json
from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from surgery_cli.errors import SurgeryError
from tests.fuzz.__main__ import Watched
from tests.fuzz.mutations import mutated
from tests.fuzz.ocdbt import MANIFEST, NODE, envelope, repaired
from tests.fuzz.readers import difference, leaves_of, match_pattern, read_plan
from tests.fuzz.seeds import SEEDS
from tests.fuzz.worker import AT, Worker

INPUTS = {"t5x": 15, "patterns": 150, "plans": 40, "msgpack": 80}


@pytest.mark.parametrize("kind", SEEDS)
def test_what_nobody_writes_is_refused_or_read_as_others_read_it(kind, tmp_path):
    worker = Worker(kind, 0, tmp_path, judged=4)
    for number in range(INPUTS.get(kind, 30)):
        worker.take(number)
    assert worker.findings == []
    assert worker.found["inputs"] > worker.found["unchanged"]


ONE_FILE = {
    "patterns": match_pattern,
    "plans": read_plan,
    "msgpack": leaves_of,
    "safetensors": leaves_of,
}


@pytest.fixture(scope="module")
def one_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seeds")
    found = {}
    for kind in ONE_FILE:
        (folder / kind).mkdir()
        places = [case.place for case in SEEDS[kind](folder / kind) if case.place.is_file()]
        found[kind] = [(place, place.read_bytes()) for place in places]
    return lambda kind, which: found[kind][which % len(found[kind])]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    kind=st.sampled_from(list(ONE_FILE)),
    which=st.integers(0, 99),
    chance=st.randoms(use_true_random=False),
)
def test_what_is_found_shrinks_to_the_least_that_shows_it(one_file, kind, which, chance):
    place, content = one_file(kind, which)
    place.write_bytes(mutated(content, [content], chance))
    with suppress(SurgeryError):
        ONE_FILE[kind](place)
    place.write_bytes(content)


def test_the_judge_sees_every_kind_of_difference():
    tree = {"a": np.ones((2, 3), np.float32), "b": "text", "c": np.int32(3)}
    assert difference(tree, dict(tree)) is None
    for changed in (
        {"a": tree["a"] * 2},
        {"a": tree["a"].T},
        {"a": tree["a"].astype(np.float64)},
        {"b": "other"},
        {"b": tree["a"]},
        {"c": np.int32(4)},
        {"d": tree["a"]},
    ):
        assert difference(tree, tree | changed) is not None
        assert difference(tree | changed, tree) is not None


def test_it_is_known_whether_an_input_is_in_the_hands_of_its_judge(tmp_path):
    worker = Worker("msgpack", 0, tmp_path, judged=1)
    began = []
    worker.judging = lambda is_begun: began.append((is_begun, dict(worker.found)))
    for number in range(40):
        worker.take(number)
    (one, known), (other, _) = began[:2]
    assert (one, other, known["judged"]) == (True, False, 1)
    assert len(began) == 2 * worker.found["judged"]


@pytest.mark.parametrize("is_judged", [True, False])
@pytest.mark.parametrize("hung", [True, False])
def test_what_ends_or_hangs_is_ours_unless_a_judge_was_at_it(
    tmp_path, monkeypatch, hung, is_judged
):
    """The first process gets to input 17 and told of 12; the next one reads the rest."""

    def run(watched, first, count):
        place = watched.folder
        is_first = first == 10
        inputs = 3 if is_first else count
        told = {"counts": {"inputs": inputs}, "cpu": 1.0, "peak_kib": 7, "slowest": (0.5, first)}
        (place / "said").write_text(json.dumps(told))
        (place / "errors").write_text("bad_alloc")
        (place / "at").write_bytes(AT.pack(17, 1.0, is_judged))
        return SimpleNamespace(returncode=-6 if is_first else 0), hung

    monkeypatch.setattr(Watched, "_run", run)
    watched = Watched("msgpack", 0, tmp_path, 0)
    watched.read(10, 20)
    assert watched.counts["inputs"] == 20
    sorts = {
        (True, True): "the judge does not end",
        (True, False): "the judge ends its process",
        (False, True): "time",
        (False, False): "crash",
    }
    assert watched.counts[sorts[is_judged, hung]] == 1
    assert [found["number"] for found in watched.findings] == ([] if is_judged else [17])


def test_checksums_of_manifests_and_nodes_are_made_good_again():
    whole = b"before" + envelope(NODE, b"body") + b"between" + envelope(MANIFEST, b"other")
    broken = whole.replace(b"body", b"bodx")
    assert repaired(whole) == whole
    assert repaired(broken) == b"before" + envelope(NODE, b"bodx") + b"between" + envelope(
        MANIFEST, b"other"
    )
