"""The quick tier tries a sample, and `make check-all` all of it: nothing of the rest is forgotten."""

import itertools
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import turns
from tests.covers import covered, is_for_other_service

ROOT = Path(__file__).parents[1]
HAS_MORE = re.compile(
    r"getoption\(\s*\"(--)?every.combination\"|^@pytest\.mark\.(covers|sampled|check_all)\b",
    re.MULTILINE,
)


def places_with_more():
    """What has tests that the quick tier leaves out: files, and the folders of what several share."""
    for file in sorted((ROOT / "tests").rglob("*.py")):
        chooses = file.parent == ROOT / "tests" and file.name in ("conftest.py", "turns.py")
        if HAS_MORE.search(file.read_text("utf-8")) and not chooses:
            yield file.parent if file.name == "conftest.py" else file


def places_tried_in_full():
    recipe = re.search(
        r"^check-all:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE
    )
    for line in recipe[1].splitlines():
        if "--every-combination" in line:
            for word in re.findall(r"\btests/\S+", line):
                found = [*ROOT.glob(word)]
                assert found, word
                yield from found


def test_check_all_tries_everything():
    tried = set(places_tried_in_full())
    files = {*(ROOT / "tests").rglob("test_*.py")} - {*(ROOT / "tests" / "fixtures").rglob("*.py")}
    left = [file for file in files if not tried & {file, *file.parents}]
    assert [str(file.relative_to(ROOT)) for file in left] == []


def test_check_all_tries_everything_that_has_more_combinations():
    tried = set(places_tried_in_full())
    assert [
        str(place.relative_to(ROOT))
        for place in places_with_more()
        if not tried & {place, *place.parents}
    ] == []


@pytest.mark.parametrize("axes", [(3, 4), (7, 4, 4), (5, 2, 2, 3)])
@pytest.mark.parametrize("strength", [1, 2])
def test_a_cover_has_every_value_or_every_pair_and_few_combinations(axes, strength):
    points = list(itertools.product(*map(range, axes)))
    chosen = [points[number] for number in covered(points, strength)]
    for some in itertools.combinations(range(len(axes)), strength):
        wanted = set(itertools.product(*(range(axes[axis]) for axis in some)))
        assert {tuple(point[axis] for axis in some) for point in chosen} == wanted
    largest = sorted(axes)[-strength:]
    assert len(chosen) <= 2 * largest[0] * (largest[-1] if strength == 2 else 1)


def test_a_product_with_gaps_is_covered_where_it_has_something():
    points = [("a", 1), ("a", 2), ("b", 2)]
    assert covered(points, 1) == [0, 2]
    assert covered(points, 2) == [0, 1, 2]


def test_a_test_for_both_services_is_tried_on_one_of_them_and_as_many_on_each():
    kept = []
    for number in range(200):
        for name in ("gs", "s3"):
            case = SimpleNamespace(params={"service": name})
            item = SimpleNamespace(
                nodeid=f"tests/a.py::test_{number}[{name}-rest]",
                callspec=case,
            )
            kept += [] if is_for_other_service(item) else [(number, name)]
    assert [number for number, _ in kept] == [*range(200)]
    assert 60 < sum(name == "gs" for _, name in kept) < 140
    plain = SimpleNamespace(nodeid="tests/a.py::test_alone")
    assert not is_for_other_service(plain)


def test_every_slow_test_has_one_turn(tmp_path):
    """A test that is not in the table is tried at each commit, whatever it takes: nothing is left out by mistake."""
    slow = sorted(turns.slow_tests())
    names = [
        *slow,
        *(f"{test}[{case}]" for test in slow[:50] for case in range(20)),
        "tests/a.py::test_new",
    ]
    tried = []
    for turn in range(turns.TURNS):
        items = [SimpleNamespace(nodeid=name) for name in names]
        hook = SimpleNamespace(pytest_deselected=lambda items: None)
        turns.take_turns(SimpleNamespace(hook=hook), items, turn)
        assert len(names) / turns.TURNS * 0.7 < len(items) < len(names) / turns.TURNS * 1.3
        tried += [item.nodeid for item in items]
    assert sorted(tried) == sorted([*names, *["tests/a.py::test_new"] * (turns.TURNS - 1)])


def test_the_table_names_tests_that_there_are():
    """One that was renamed would run at each commit again, and nobody would see why it takes long."""
    gone = []
    for test in turns.slow_tests():
        file, name = test.split("::")
        text = (ROOT / file).read_text("utf-8") if (ROOT / file).is_file() else ""
        gone += [] if re.search(rf"^def {name}\b|^{name} =", text, re.MULTILINE) else [test]
    assert gone == []


def test_the_table_is_of_what_was_measured(tmp_path):
    junit = tmp_path / "junit.xml"
    junit.write_text(
        '<testsuites><testsuite><testcase classname="tests.cli.test_a" name="test_b[x::y]" time="0.9"/>'
        '<testcase classname="tests.cli.test_a" name="test_b[z]" time="0.5"/>'
        '<testcase classname="tests.test_c" name="test_d" time="0.2"/></testsuite></testsuites>'
    )
    assert turns.table_of(junit) == "0.7 tests/cli/test_a.py::test_b\n"
