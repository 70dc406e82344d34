"""Paths, patterns and the nearest names."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from surgery_cli.errors import PlanError
from surgery_cli.tree.nearness import nearest
from surgery_cli.tree.paths import LeafPath, PathPattern
from surgery_cli.tree.spelling import decode, unescaped
from surgery_cli.tree.targets import check_targets


def path(*keys):
    return LeafPath(keys)


def names(pattern, *keys):
    return PathPattern(pattern).match(path(*keys)) is not None


KEYS = st.text(st.sampled_from("ab/%2F5.*"), min_size=1, max_size=6)


@given(st.lists(KEYS, min_size=1, max_size=4))
def test_a_spelling_gives_back_the_keys(keys):
    assert [decode(segment) for segment in path(*keys).spelling.split("/")] == keys


@given(st.text("%25F2fab", max_size=8))
def test_only_percent_2f_and_percent_25_decode(text):
    left_to_right, rest = "", text
    while rest:
        taken = {"%2F": "/", "%2f": "/", "%25": "%"}.get(rest[:3])
        left_to_right += rest[0] if taken is None else taken
        rest = rest[1:] if taken is None else rest[3:]
    assert decode(text) == left_to_right


@pytest.mark.parametrize(
    ("pattern", "keys"),
    [
        ("params/Dense_1/kernel", ("params", "Dense_1", "kernel")),
        ("params/Dense_1", ("params", "Dense_1", "kernel")),
        ("params/Dense_1/", ("params", "Dense_1", "kernel")),
        ("params/*/kernel", ("params", "Dense_1", "kernel")),
        ("params/*/*/w", ("params", "a/b", "w")),
        ("params/**/kernel", ("params", "kernel")),
        ("params/**/kernel", ("params", "a", "b", "kernel")),
        ("params/**", ("params",)),
        ("**", ("a", 0, "b")),
        ("**/mu", ("opt_state", 0, "mu", "kernel")),
        ("opt_state/0", ("opt_state", 0, "count")),
        ("layers/[0-9]", ("layers", 7, "w")),
        ("a[*]b", ("a*b",)),
        ("[]]x", ("]x",)),
        ("[!0-9]x", ("ax",)),
        ("[^0-9]x", ("ax",)),
        ("Dense_{0,2}/kernel", ("Dense_2", "kernel")),
        ("{Conv_*,Dense_{0,1}}/kernel", ("Dense_1", "kernel")),
        ("{Conv_*,Dense_{0,1}}/kernel", ("Conv_9", "kernel")),
        ("a%2Fb/c", ("a/b", "c")),
        ("100%25", ("100%",)),
        ("100%", ("100%",)),
        ("a%20b", ("a%20b",)),
        ("a%1Bb", ("a\x1bb",)),
        ("a%0ab%E2%80%AE", ("a\nb\u202e",)),
        ("a%251Bb", ("a%1Bb",)),
        ("a%C3%BC", ("a%C3%BC",)),
        ("{,}", ("",)),
        ("a/{,}/w", ("a", "", "w")),
        ("[r]e:x", ("re:x",)),
        ("re:params/.*/kernel", ("params", "a", "b", "kernel")),
        ("a.b", ("a.b",)),
        ("a(b)|c", ("a(b)|c",)),
    ],
)
def test_a_pattern_names_what_it_says(pattern, keys):
    assert names(pattern, *keys)


@pytest.mark.parametrize(
    ("pattern", "keys"),
    [
        ("params/Dense_1", ("params", "Dense_10", "kernel")),
        ("params/*/w", ("params", "a/b", "w")),
        ("params/*", ("params",)),
        ("*", ("a/b",)),
        ("a/b", ("a/bc",)),
        ("a", ("a/b",)),
        ("a?b", ("a/b",)),
        ("a[!x]b", ("a/b",)),
        ("a[+-9]b", ("a/b",)),
        ("a[*]b", ("axb",)),
        ("a%2Fb", ("a", "b")),
        ("a%1Bb", ("a%1Bb",)),
        ("a/{,}", ("a", "b")),
        ("re:params", ("params", "kernel")),
        ("a.b", ("axb",)),
        ("Dense_{0,2}", ("Dense_1",)),
    ],
)
def test_a_pattern_does_not_name_what_it_does_not_say(pattern, keys):
    assert not names(pattern, *keys)


PLAIN_KEYS = st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=5)


@given(PLAIN_KEYS, st.data())
def test_two_stars_stand_for_any_run_of_keys(keys, data):
    start = data.draw(st.integers(0, len(keys)))
    end = data.draw(st.integers(start, len(keys)))
    pattern = "/".join([*keys[:start], "**", *keys[end:]])
    match = PathPattern(pattern).match(path(*keys))
    assert match is not None
    if end < len(keys) and keys[end:] != keys[start : start + len(keys) - end]:
        assert names(pattern, *keys[:start], "x", "y", *keys[end:])


@given(PLAIN_KEYS, st.lists(st.sampled_from(["a", "b", "?", "*"]), min_size=1, max_size=5))
def test_stars_and_question_marks_agree_with_key_by_key_matching(keys, glob):
    expected = len(glob) <= len(keys) and all(
        re.fullmatch(g.replace("*", ".*").replace("?", "."), k)
        for g, k in zip(glob, keys, strict=False)
    )
    assert names("/".join(glob), *keys) == bool(expected)


@given(PLAIN_KEYS)
def test_naming_many_leaves_agrees_with_naming_one(keys):
    leaves = [path(*keys[:n], "leaf", m) for n in range(len(keys)) for m in range(2)]
    pattern = PathPattern("**/{a*,leaf}/1")
    found = pattern.named({leaf: leaf.text for leaf in leaves})
    assert found == {leaf: m for leaf in leaves if (m := pattern.match(leaf)) is not None}


def test_what_lies_below_the_named_node_is_the_tail():
    match = PathPattern("params/*").match(path("params", "layers", 0, "w"))
    assert match.node == ("params", "layers")
    assert match.tail == (0, "w")
    assert match.groups == ("layers",)


def test_the_deepest_node_that_matches_counts():
    assert PathPattern("**/b").match(path("a", "b", "b", "c")).node == ("a", "b", "b")


def test_wildcards_are_captured_in_order():
    match = PathPattern("*/**/layer_?/[ab]").match(path("x", "y", 0, "layer_3", "b"))
    assert match.groups == ("x", "y/0", "3", "b")


def test_captured_keys_keep_their_types_and_their_slashes():
    match = PathPattern("**/w").match(path("a/b", 0, "0", "w"))
    assert match.keys(0) == ("a/b", 0, "0")
    assert [type(key) for key in match.keys(0)] == [str, int, str]


def test_a_group_that_cuts_through_a_key_has_no_keys():
    assert PathPattern("Dense_*").match(path("Dense_1")).keys(0) is None


def test_two_stars_that_stand_for_nothing_capture_no_keys():
    match = PathPattern("params/**/w").match(path("params", "w"))
    assert match.groups == ("",)
    assert match.keys(0) == ()


def test_groups_of_a_regular_expression_are_captured():
    match = PathPattern(r"re:layers/(\d+)/(w|b)(x)?").match(path("layers", 12, "w"))
    assert match.groups == ("12", "w", "")
    assert match.keys(0) == (12,)
    assert match.keys(2) == ()


@pytest.mark.parametrize("text", ["", "/", "re:(", "[z-a]"])
def test_a_pattern_that_cannot_be_read_is_an_error(text):
    with pytest.raises(PlanError):
        PathPattern(text)


@pytest.mark.parametrize(
    ("pattern", "is_literal"),
    [("a/b", True), ("a[*]b", True), ("a/*", False), ("a/{b,c}", False), ("re:a", False)],
)
def test_a_text_without_wildcards_is_literal(pattern, is_literal):
    assert PathPattern(pattern).is_literal is is_literal


def test_the_nearest_name_comes_first():
    names = ["params/Dense_0/kernel", "params/Dense_1/bias", "params/Conv_0/kernel", "step"]
    assert nearest("params/Dense_0/kernl", names)[0] == "params/Dense_0/kernel"


def test_the_nearest_name_is_found_among_many():
    names = [f"params/layer_{i}/block_{j}/kernel" for i in range(200) for j in range(50)]
    assert nearest("params/layer_17/block_4/kernal", names)[0] == "params/layer_17/block_4/kernel"


def test_nothing_is_near_to_something_else_altogether():
    assert nearest("zzz", ["params/kernel"]) == []


SIGNS = st.sampled_from(
    [
        "%2F",
        "%0A",
        "%C2%85",
        "re:",
        *"ab05/%é核25AC*?[]{},!- .^\\\n\x1b\x7f\x85\u2028\u202e\xa0\ud800",
    ]
)
ODD_KEYS = st.lists(SIGNS, max_size=5).map("".join)
ODD_PATHS = st.lists(ODD_KEYS, min_size=1, max_size=3).map(LeafPath)


@given(ODD_PATHS)
def test_a_path_is_shown_as_a_pattern_that_names_it(odd):
    for shown in (str(odd), odd.exact_pattern):
        assert PathPattern(shown).match(odd).node == odd
        assert shown.isprintable()
        assert shown == shown.strip()


@example(LeafPath(("", "", "re:")), "/re:", 1, 0)
@given(ODD_PATHS, ODD_KEYS, st.integers(0, 2), st.integers(0, 12))
def test_the_shown_path_names_no_other_that_is_near(odd, key, at, start):
    """A node whose keys hold slashes may have the same text."""
    at %= len(odd)
    start %= len(odd[at]) + 1
    changed = [
        key,
        odd[at][:start] + key,
        key + odd[at][start:],
        decode(odd[at]),
        unescaped(odd[at]),
    ]
    for near in changed:
        other = LeafPath((*odd[:at], near, *odd[at + 1 :]))
        is_same = other.text == odd.text
        assert (str(odd) == str(other)) <= is_same
        assert (odd.exact_pattern == other.exact_pattern) == (odd == other)
        match = PathPattern(str(odd)).match(other)
        nodes = [LeafPath(other[:depth]) for depth in range(1, len(other) + 1)]
        assert match is None or odd.text in [node.text for node in nodes]
        assert match is not None or odd not in nodes


@pytest.mark.parametrize("text", ["params/Dense_0/kernel", "opt_state/0/mu/a.b", "l/~/linear_1/w"])
def test_what_is_not_special_is_shown_as_it_is(text):
    assert str(LeafPath(text.split("/"))) == LeafPath(text.split("/")).exact_pattern == text
    assert str(LeafPath((text,))) == text


def test_targets_are_refused_together_before_any_leaf_is_known():
    with pytest.raises(PlanError) as refused:
        check_targets({"params/*": "p/\\2", "opt/*": "o/\\1", "a/*": "b/\\3"})
    assert len(refused.value.problems) == 2
    check_targets({"params/*": "p/\\1"})
