"""Globs are matched as regular expressions would, in a time that no pattern can make long."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surgery_cli.errors import PlanError
from surgery_cli.planning.plan_files import parse
from surgery_cli.tree import globs
from surgery_cli.tree.glob_parts import regex
from surgery_cli.tree.linear_matching import Linear
from surgery_cli.tree.paths import LeafPath, PathPattern

PIECES = [
    *("**/", "*", "?", "[ab]", "[!a]", "{a,ab}", "{b,*a,**/x}", "a", "b", "/", "ab", "/**"),
    *("{1..12}", "{0..2}", "1"),
]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map("".join),
    st.text("ab/x12", min_size=1, max_size=9),
)
def test_both_ways_of_matching_find_the_same_groups(glob, text):
    parts = globs.read(glob)
    expression = re.compile(regex(parts), re.DOTALL)
    expected = expression.fullmatch(text)
    found = Linear(parts, expression.groups).fullmatch(text)
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert [group or "" for group in found.groups()] == [
            group or "" for group in expected.groups()
        ]
        for number, group in enumerate(expected.groups(), 1):
            assert group is None or found.span(number) == expected.span(number)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "glob",
    [
        "**/" * 50 + "b",
        "**/a/" * 30 + "b",
        "*a" * 40 + "b",
        "{a*,*a}" * 30 + "b",
        "{*,**/a,a}" * 10 + "b",
        "?*" * 30 + "b",
        "*" * 1000 + "b",
        "{" * 3000 + "}" * 3000,
        "a/" * 5000,
        "a{0..11}/" * 2000 + "b",
        "[" * 5000,
    ],
)
def test_no_glob_takes_long(glob):
    leaves = [LeafPath(("a",) * n + ("a" * 60,)) for n in range(1, 40)]
    began = time.process_time()
    try:
        pattern = PathPattern(glob)
    except PlanError:
        return
    assert not any(pattern.match(leaf) for leaf in leaves)
    assert time.process_time() - began < 5


@pytest.mark.parametrize("stars", range(2, 9))
def test_the_first_of_wildcards_that_share_a_text_takes_the_most(stars):
    path = LeafPath(("_".join("abcdefghij"),))
    found = PathPattern("_".join("*" * stars)).match(path)
    assert found is not None
    assert found.groups == ("_".join("abcdefghij"[: 11 - stars]), *"abcdefghij"[11 - stars :])


def test_of_several_double_stars_in_a_row_the_first_takes_all():
    found = PathPattern("**/" * 4 + "w").match(LeafPath(("a", "b", "w")))
    assert found is not None
    assert found.groups == ("a/b", "", "", "")
    assert found.keys(0) == ("a", "b")
    assert found.keys(3) == ()


@pytest.mark.parametrize(
    "text",
    [
        ".".join(["a"] * 50_000) + " = 1",
        "\n" + ".".join(["'a b'"] * 50_000) + " = 1",
        "[" + " . ".join(["a"] * 50_000) + "]",
        "x = {" + ".".join(['"a"'] * 50_000) + " = 1}",
    ],
)
def test_a_toml_key_of_very_many_parts_is_refused_at_once(text):
    began = time.process_time()
    with pytest.raises(PlanError, match="more than 128 parts") as refused:
        parse(text, "TOML", "p.toml")
    assert time.process_time() - began < 5
    assert refused.value.problems[0].line == 1 + text.count("\n")


def test_dots_in_texts_of_toml_are_no_keys():
    dotted = ".".join(["a"] * 500)
    read = parse(f"note = '{dotted}'\nb = '''\n{dotted} = 1\n'''\n# {dotted} = 2\n", "TOML", "p")
    assert read.value["note"] == dotted


@pytest.mark.parametrize("format", ["YAML", "JSON", "TOML"])
@pytest.mark.parametrize("opening", ["[", '{"a":', "{a = "])
def test_a_plan_nested_very_deeply_is_refused(format, opening):
    with pytest.raises(PlanError):
        parse(
            "x = " * (format == "TOML") + opening * (1_000 if format == "YAML" else 20_000),
            format,
            "p",
        )
