"""A few inputs of every kind, by the machine that reads a million of them (`make fuzz N=1000000`)."""

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from surgery_cli.errors import SurgeryError
from tests.fuzz.mutations import mutated
from tests.fuzz.ocdbt import MANIFEST, NODE, envelope, repaired
from tests.fuzz.readers import difference, leaves_of, match_pattern, read_plan
from tests.fuzz.seeds import SEEDS
from tests.fuzz.worker import Worker

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


def test_checksums_of_manifests_and_nodes_are_made_good_again():
    whole = b"before" + envelope(NODE, b"body") + b"between" + envelope(MANIFEST, b"other")
    broken = whole.replace(b"body", b"bodx")
    assert repaired(whole) == whole
    assert repaired(broken) == b"before" + envelope(NODE, b"bodx") + b"between" + envelope(
        MANIFEST, b"other"
    )
