"""Many problems of one cause are said once, as the series that they are; none is lost in JSON."""

import ast
import re
from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surgery_cli.errors import PlanError, Problem, grouped
from surgery_cli.tree.paths import LeafPath, PathPattern
from surgery_cli.words.series import folded


def spelled_out(text):
    """Every text that a folded one may stand for, each series of numbers on its own."""
    found = re.search(r"\{([0-9.,]+)\}", text)
    if found is None:
        return {text}
    numbers = []
    for part in found[1].split(","):
        first, _, last = part.partition("..")
        numbers += range(int(first), int(last or first) + 1)
    return {
        whole
        for number in numbers
        for whole in spelled_out(f"{text[: found.start()]}{number}{text[found.end() :]}")
    }


@given(
    st.lists(
        st.builds("{}_{}/{}".format, *[st.sampled_from(part) for part in ("ab", range(12), "wb")])
    )
)
def test_a_series_stands_for_its_texts_and_no_others(texts):
    assert set().union(*map(spelled_out, folded(texts)), set()) == set(texts)


@given(st.sets(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1))
def test_two_numbers_are_folded_where_every_pair_is_there(pairs):
    texts = {f"l{a}/h{b}" for a, b in pairs}
    found = folded(sorted(texts))
    if len(found) == 1 and any(a != b for a, b in pairs):
        assert spelled_out(found[0]) == texts


def test_numbers_with_zeros_in_front_are_listed():
    assert folded(["a_007", "a_008", "a_010"]) == ["a_{007,008,010}"]
    assert folded(["a_07", "a_8", "a_9", "a_10"]) == ["a_{07,8,9,10}"]


@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("step", [1, 3])
def test_what_numbers_are_folded_to_names_them_and_no_others(width, step):
    """Also with zeros in front: what is printed is a pattern."""
    every = [LeafPath((f"w_{n:0{width}}",)) for n in range(130)]
    meant = [*every[: 12 * step : step], *every[95:105]]
    (text,) = folded(map(str, meant))
    assert step > 1 or ".." in text
    assert set(PathPattern(text).named({path: str(path) for path in every})) == set(meant)


def of_leaf(path, shape="[3]", fix="add `cast: true`"):
    return Problem(f"'{path}' is float32{shape}", why="no cast", fix=fix, path=path)


def test_problems_of_one_cause_become_one_that_speaks_of_all():
    (said,) = grouped([of_leaf(f"p/{n}/w") for n in range(27)])
    assert (said.what, said.path) == ("'p/{0..26}/w' is float32[3]", "p/{0..26}/w")
    assert said.why == "no cast; so it is with all 27"


def test_further_series_of_the_same_cause_are_named():
    problems = [of_leaf(f"p/{n}/{name}") for n in range(12) for name in ("w", "b")]
    (said,) = grouped(problems)
    assert said.what == "'p/{0..11}/w' is float32[3]"
    assert said.why == "no cast; and so it is with 12 more: 'p/{0..11}/b'"


def test_names_that_are_no_series_are_counted():
    (said,) = grouped([of_leaf(f"p/{name}/w") for name in ("conv", "dense", "head", "norm")])
    assert said.what == "'p/conv/w' is float32[3]"
    assert said.why == "no cast; and so it is with 3 more: 'p/dense/w', 'p/head/w', 'p/norm/w'"
    (said,) = grouped([of_leaf(f"p/{name}/w") for name in "abcdefg"])
    assert said.why == "no cast; and so it is with 6 more"
    (said,) = grouped([Problem(f"'{name}' matches nothing") for name in "abcd"])
    assert (said.what, said.why) == (
        "'a' matches nothing",
        "and so it is with 3 more: 'b', 'c', 'd'",
    )


def test_few_problems_and_those_of_other_causes_stay_as_they_are():
    few = [of_leaf(f"p/{n}/w") for n in range(3)]
    others = [Problem("the disk is full"), Problem("`by` is 0", fix="use `by: 1`")]
    assert grouped([*few, *others]) == [*few, *others]


@given(
    st.lists(
        st.one_of(st.floats(-1e6, 1e6), st.integers(-(10**6), 10**6)).map("{:.4g}".format),
        min_size=4,
        max_size=9,
    )
)
def test_what_was_measured_is_said_from_the_least_to_the_most_and_never_folded(numbers):
    problems = [of_leaf(f"p/{n}/w") for n in range(len(numbers))]
    problems = [
        Problem(problem.what, why=f"its norm is `{number}`", path=problem.path)
        for problem, number in zip(problems, numbers, strict=True)
    ]
    (said,) = grouped(problems)
    assert said.path == f"p/{{0..{len(numbers) - 1}}}/w"
    found = re.fullmatch(r"its norm is `([^` ]+)(?: to ([^` ]+))?`; so it is with all \d", said.why)
    assert float(found[1]) == min(map(float, numbers))
    assert float(found[2] or found[1]) == max(map(float, numbers))


def test_a_range_of_what_was_measured_is_about_leaves_of_every_series():
    numbers = {"p/0/w": "0.5", "p/1/w": "2", "p/2/w": "1e-05", "head/b": "1,200", "x": "7"}
    (said,) = grouped(
        [Problem(f"'{path}'", f"it is `{n}`", path=path) for path, n in numbers.items()]
    )
    assert said.what == "'p/{0..2}/w'"
    assert said.why == "it is `1e-05 to 1,200`; and so it is with 2 more: 'head/b', 'x'"


@pytest.mark.parametrize("texts", ["norm 0..{}", "norm {}..10000", "digest 12{}ab…"])
def test_bounds_and_digests_are_no_measurements(texts):
    """What a rule demands is another cause where it is another number."""
    said = grouped([Problem("'w'", why=f"`{texts.format(n)}`", path=str(n)) for n in range(5)])
    assert [one.why for one in said] == [f"`{texts.format(n)}`" for n in range(5)]


def test_advice_stays_a_command_that_works():
    problems = [of_leaf(f"p/{n}/w", fix=f"`delete` 'p/{n}/w'") for n in range(5)]
    assert grouped(problems)[0].fix == "`delete` 'p/0/w'"


def test_an_error_says_each_cause_once_and_keeps_every_problem():
    error = PlanError.of([of_leaf(f"p/{n}/w") for n in range(27)])
    assert len(error.problems) == 27
    assert str(error).count("is float32") == 1


@pytest.fixture(scope="module")
def layers(tmp_path_factory):
    path = tmp_path_factory.mktemp("layers") / "source"
    params = {
        f"layers_{n}": {"kernel": np.ones((2, 3), np.float32), "steps": np.zeros((), np.int32)}
        for n in range(27)
    }
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(path, {"params": params})
    return path


@pytest.mark.parametrize(
    "edit",
    [
        ("rescale", "params", "--by=2"),
        ("rename", "params/*", "--to=params/x"),
        ("rename", "params/layers_*/kernel", "--to=params/layers_\\1/steps"),
        ("rename", "params/layers_*/kernel", "--to=params/layers_\\1/steps/x"),
        ("copy", "params/layers_*/kernel", "--to=params/layers_\\1/steps"),
        ("cast", "params/**", "--to=int8"),
        ("normalize", "params/*/steps", "--axis=0"),
        ("set", "params/*/kernel", "--to=1"),
        ("replace", "params/*/kernel", "--with=1e40"),
        ("reinit", "params/*/steps", "--init=lecun_normal"),
        ("average", "params/*/steps", "--with=SELF", "--weights=1,2"),
        ("replace", "params", "--with=SELF", "--from=elsewhere"),
    ],
    ids=" ".join,
)
def test_no_edit_says_one_cause_twenty_seven_times(surgery, layers, tmp_path, edit):
    name, at, *options = [word.replace("SELF", str(layers)) for word in edit]
    said = surgery(name, layers, tmp_path / "new", at, *options)
    assert said.code == 2
    assert said.err.count("error: ") <= 3, said.err
    assert len(said.err.splitlines()) <= 12, said.err


def test_a_series_is_of_one_shape_and_leaves_of_others_are_counted():
    problems = [
        Problem(f"'params/layers_{n}/w' breaks `dtype bfloat16`", f"it is float32[{n % 2},4]")
        for n in range(10)
    ]
    (one,) = grouped(problems)
    assert one.what == "'params/layers_{0,2,4,6,8}/w' breaks `dtype bfloat16`"
    assert one.why.startswith("it is float32[0,4]")
    assert "5" in one.why


def printed(problems):
    from io import StringIO

    from surgery_cli.console.page import Page
    from surgery_cli.console.problems import render

    stream = StringIO()
    render(problems, Page(stream))
    return stream.getvalue()


@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(0, 12)), min_size=2, max_size=120, unique=True
    )
)
def test_what_is_shown_and_what_is_not_come_to_the_count(pairs):
    """Of any problems: the errors, those that each speaks of, and those that are left out."""
    causes = [f"cause {chr(97 + cause)}{chr(97 + cause % 7)}" for cause in range(31)]
    text = printed([Problem(f"'p/w_{leaf}' fails", causes[cause]) for cause, leaf in pairs])
    shown = 0
    for entry in text.split("error: ")[1:]:
        series = spelled_out(re.search("'(.*)' fails", entry)[1])
        others = re.search(r"and so it is with ([\d,]+) more", entry)
        shown += len(series) + (int(others[1]) if others else 0)
    left = re.search(r"^and ([\d,]+) more \(`--json` lists them\)$", text, re.MULTILINE)
    (total,) = re.findall(r"^(\d+) problems(?: of \d+ causes?)?$", text, re.MULTILINE)
    assert shown + (int(left[1]) if left else 0) == int(total) == len(pairs)


def test_no_sentence_shows_the_first_of_some_names_without_their_count():
    """`listed` and `quoted` say how many more there are; a slice that is joined does not."""
    found = []
    for file in sorted((Path(__file__).parents[2] / "surgery_cli").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            is_join = isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "join"
            if not is_join or getattr(getattr(node.func, "value", None), "value", "") != ", ":
                continue
            cut = [one for one in ast.walk(node) if isinstance(one, ast.Slice)]
            ends = [one.upper for one in cut if isinstance(one.upper, ast.Constant | ast.Name)]
            found += [f"{file.name}:{node.lineno}" for end in ends]
    assert found == ["lists.py:18"]


def test_the_lines_of_those_that_are_left_out_are_said():
    problems = [
        Problem(f"'params/a_{n}/w' is not there", path=f"params/a_{n}/w", file="p.yaml", line=line)
        for n, line in enumerate([2, 2, 3, 5, 5])
    ]
    (one,) = grouped(problems)
    assert one.line == 2
    assert one.why.endswith("(lines 3, 5)")
