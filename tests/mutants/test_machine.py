"""What the machine makes of answers: they add up for one source, and who does not end has given none."""

import json
import time
from types import SimpleNamespace

import pytest

from tests.mutants import __main__ as machine
from tests.mutants.mutations import mutants_of

SOURCE = "def f(a, b):\n    return a < b and a > 0\n"


@pytest.fixture
def keep(tmp_path):
    place = tmp_path / "results.json"

    def kept(answers, source=SOURCE, *, again=False):
        given = SimpleNamespace(results=place, again=again)
        every = mutants_of(source)
        chosen = {every[number]: answer for number, answer in answers.items()}
        machine._keep(given, "module", source, every, chosen)
        return json.loads(place.read_text())["module"]

    return kept


def test_draws_of_one_source_add_up_and_those_of_another_begin_anew(keep):
    first = keep({0: True, 1: False})
    assert (first["tried"], len(first["survived"])) == (2, 1)
    second = keep({1: False, 2: True})
    assert (second["tried"], second["drawn"], len(second["survived"])) == (3, [0, 1, 2], 2)
    third = keep({0: False})
    assert (third["tried"], len(third["survived"])) == (3, 1)
    again = keep({2: False}, again=True)
    assert (again["tried"], again["survived"]) == (3, [])
    other = keep({0: True}, SOURCE.replace("a > 0", "a > 1"))
    assert (other["tried"], len(other["survived"])) == (1, 1)


def test_who_gives_no_answer_is_neither_tried_nor_noticed(keep):
    assert keep({0: None, 1: False})["drawn"] == [1]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # JAX warns of forks
def test_who_waits_for_ever_gives_no_answer(monkeypatch):
    monkeypatch.setattr(machine, "PATIENCE", 0.2)
    monkeypatch.setattr(machine, "_run", lambda *_: time.sleep(60))
    assert machine.survives("tree.paths", "", ()) is None
