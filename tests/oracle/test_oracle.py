"""A pairwise sample of what ``python -m oracle`` tries: wrong and unsaid must be zero.

``ORACLE_SEED`` draws another sample than the usual one.
"""

import os

import numpy as np
import pytest

from tests.oracle.cases import EDITS, SURROUNDINGS, Case, missing_pairs, pairwise
from tests.oracle.editing import edited, edited_on_disk
from tests.oracle.table import UNSAID
from tests.oracle.training import both_trainings
from tests.oracle.verdicts import judged

SEED = int(os.environ.get("ORACLE_SEED", "0"))
CASES = pairwise(SEED)


def test_every_two_values_of_the_sample_meet():
    assert not missing_pairs(CASES)


@pytest.mark.sampled(2)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("surrounding", SURROUNDINGS)
def test_what_training_would_not_have_made_is_said(surrounding, record_property, pytestconfig):
    cases = [case for case in CASES if case.surrounding == surrounding]
    if not pytestconfig.getoption("every_combination"):
        cases = cases[::12]  # the others are tried with `make oracle`, which tries all
    found = [one for case in cases for one in judged(case)]
    record_property("oracle", [SEED, [[one.case.optimizer, one.verdict] for one in found]])
    unsaid = [one.text for one in found if one.verdict == UNSAID]
    assert not unsaid, "\n".join(unsaid)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "case",
    [
        Case("scale_by_trust_ratio before momentum", "clip", 1, 0.001, "one leaf", "script"),
        Case("rprop", "decay", 2, 0.001, "one leaf", "script", 4),
    ],
    ids=str,
)
def test_what_fuller_runs_found_is_said(case):
    assert not [one.text for one in judged(case) if one.verdict == UNSAID]


@pytest.mark.sampled(2)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("edit", EDITS)
def test_on_disk_it_is_the_same(edit, tmp_path):
    case = next(
        c for c in CASES if c.edit == edit and c.told == "kind" and c.surrounding == "plain"
    )
    done = both_trainings(case)
    in_memory, on_disk = edited(case, done), edited_on_disk(case, done, tmp_path)
    for path in in_memory.slots:
        np.testing.assert_array_equal(in_memory.values[path], on_disk.values[path], str(path))
    assert set(in_memory.notes) <= set(on_disk.notes)
