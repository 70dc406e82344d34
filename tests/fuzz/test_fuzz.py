"""A few inputs of every kind, by the machine that reads a million of them (`make fuzz N=1000000`)."""

import json
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from surgery_cli.errors import SurgeryError
from tests.fuzz import __main__ as machine
from tests.fuzz.__main__ import Watched
from tests.fuzz.counts import unaccounted
from tests.fuzz.explained import EXPLAINED, Explained
from tests.fuzz.mutations import mutated
from tests.fuzz.ocdbt import MANIFEST, NODE, envelope, repaired
from tests.fuzz.readers import JUDGES, by_numpy, difference, leaves_of, match_pattern, read_plan
from tests.fuzz.seeds import SEEDS
from tests.fuzz.worker import AT, Worker

INPUTS = {"t5x": 15, "patterns": 150, "plans": 40, "msgpack": 80}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", SEEDS)
def test_what_nobody_writes_is_refused_or_read_as_others_read_it(kind, tmp_path):
    worker = Worker(kind, 0, tmp_path, judged=4)
    for number in range(INPUTS.get(kind, 30)):
        worker.take(number)
    assert worker.findings == []
    assert unaccounted(worker.found) == (0, 0)
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


class Refusal(Exception):
    """What no reader says."""


@pytest.mark.parametrize(("said", "opinion"), [
    ("", "read by us alone"),
    ("damaged", "read by us alone"),
    ("explained", "explained: a test's"),
])  # fmt: skip
def test_what_others_refuse_is_explained_by_its_cause_or_a_finding(
    tmp_path, monkeypatch, said, opinion
):
    """Explained only where the values are the saved ones, as the other reader makes them of the undamaged file."""
    place = tmp_path / "seeds" / "plain.npz"
    worker = Worker("npz", 0, tmp_path)
    worker.saved = {case.place: by_numpy(case.place) for case in worker.cases}
    if said == "damaged":
        worker.saved[place] = {**worker.saved[place], "a": np.zeros((2, 3), np.float32)}
    cause = "Refusal: this one" if said == "explained" else "Refusal: another"
    mine = Explained(("npz",), "read by us alone", f"plain.npz changed, verify agrees; {cause}", "")
    monkeypatch.setitem(EXPLAINED, "a test's", mine)

    def refuse(_):
        raise Refusal("this one")

    monkeypatch.setitem(JUDGES, "npz", refuse)
    worker._judge(7, place, place, leaves_of(place), "")
    assert unaccounted({"inputs": 0, **worker.found}) == (0, 0)
    assert worker.found == {"judged": 1, opinion: 1}
    assert [one["sort"] for one in worker.findings] == ["read by us alone"] * (said != "explained")


def test_a_run_with_what_is_not_explained_ends_with_1(tmp_path, monkeypatch):
    found = {
        "kind": "npz",
        "seed": 1,
        "number": 3,
        "sort": "read by us alone",
        "said": "",
        "where": "",
    }

    def read(watched, first, count):
        watched.counts.update(
            {"inputs": count, "accepted": count, "judged": 1, "read by us alone": 1}
        )
        watched.findings.append(found)

    monkeypatch.setattr(Watched, "read", read)
    words = [
        "fuzz",
        "10",
        "--kinds",
        "npz",
        "--folder",
        str(tmp_path),
        "--findings",
        str(tmp_path / "f"),
    ]
    monkeypatch.setattr("sys.argv", words)
    assert machine.main() == 1


def _told(number, **more):
    counts = {"inputs": 1, "accepted": 1} | more
    line = {"number": number, "counts": counts, "findings": [], "cpu": 0.5, "peak_kib": 7}
    return json.dumps(line) + "\n"


@pytest.mark.parametrize("is_judged", [True, False])
@pytest.mark.parametrize("hung", [True, False])
def test_what_ends_or_hangs_is_ours_unless_a_judge_was_at_it(
    tmp_path, monkeypatch, hung, is_judged
):
    """The first process told of 10 to 16 and ends at 17, perhaps in the hands of a judge."""

    def run(watched, first, count):
        place = watched.folder
        is_first = first == 10
        said = "".join(_told(number) for number in range(first, 17 if is_first else first + count))
        if is_first:
            said += (_told(17, judged=1) if is_judged else "") + '{"number": 17, "counts": {}'
        (place / "said").write_text(said)
        (place / "errors").write_text("bad_alloc")
        (place / "at").write_bytes(AT.pack(17, 1.0, is_judged))
        return SimpleNamespace(returncode=-6 if is_first else 0), hung

    monkeypatch.setattr(Watched, "_run", run)
    watched = Watched("msgpack", 0, tmp_path, 0)
    watched.read(10, 20)
    assert watched.counts["inputs"] == 20
    assert unaccounted(watched.counts) == (0, 0)
    sorts = {
        (True, True): "the judge does not end",
        (True, False): "the judge ends its process",
        (False, True): "time",
        (False, False): "crash",
    }
    assert watched.counts[sorts[is_judged, hung]] == 1
    assert watched.counts["accepted"] == (20 if is_judged else 19)
    assert [found["number"] for found in watched.findings] == ([] if is_judged else [17])


BAD_READER = """
import itertools, os, sys, time
from tests.fuzz import worker

count = itertools.count()

def read(place):
    at = next(count)
    if at == 3:
        raise RuntimeError("a bug just before")
    if at == 5:
        {ends}
    return {{}}

worker.READERS["patterns"] = read
worker.main(*sys.argv[1:])
"""


@pytest.mark.parametrize(
    ("ends", "sort", "patience"),
    [("os.abort()", "crash", 600), ("time.sleep(600)", "time", 1)],
)
def test_no_outcome_is_lost_where_a_reader_dies_or_hangs(
    tmp_path, monkeypatch, ends, sort, patience
):
    """Real processes: each begins with an input of its own, then one at which it fails, and one at which it ends."""
    monkeypatch.setattr(machine, "WORKER", ("-c", BAD_READER.format(ends=ends)))
    monkeypatch.setattr(machine, "PATIENCE", patience)
    watched = Watched("patterns", 0, tmp_path / "work", 0)
    watched.read(0, 12)
    # the first of a process is read before it counts: of twelve, the third and the fifth after each start are bad
    assert watched.counts["inputs"] == 12
    assert unaccounted(watched.counts) == (0, 0)
    bad = {sort: [4, 9], "bug": [2, 7]}
    for name, numbers in bad.items():
        assert [one["number"] for one in watched.findings if one["sort"] == name] == numbers
        assert watched.counts[name] == len(numbers)


def test_of_every_row_that_was_counted_the_outcomes_add_up():
    known = json.loads((Path(__file__).parents[2] / "docs" / "proof" / "fuzz.json").read_text())
    assert known["kinds"]
    assert {kind: unaccounted(row) for kind, row in known["kinds"].items()} == dict.fromkeys(
        known["kinds"], (0, 0)
    )


def test_checksums_of_manifests_and_nodes_are_made_good_again():
    whole = b"before" + envelope(NODE, b"body") + b"between" + envelope(MANIFEST, b"other")
    broken = whole.replace(b"body", b"bodx")
    assert repaired(whole) == whole
    assert repaired(broken) == b"before" + envelope(NODE, b"bodx") + b"between" + envelope(
        MANIFEST, b"other"
    )
