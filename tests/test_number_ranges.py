"""Ranges of numbers in patterns, held against a reference that writes every number out."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surgery_cli.errors import PlanError
from surgery_cli.tree.listing import in_listed_order
from surgery_cli.tree.number_ranges import read_range
from surgery_cli.tree.paths import LeafPath, PathPattern


def names(pattern, text):
    return PathPattern(pattern).match(LeafPath(text.split("/"))) is not None


def written_out(first, last, step):
    """What a shell makes of `{first..last..step}`, from the texts of the ends."""
    is_padded = any(len(end) > 1 and end[0] == "0" for end in (first, last))
    width = max(len(first), len(last)) if is_padded else 1
    low, high = int(first), int(last)
    way = step if low <= high else -step
    return [str(n).zfill(width) for n in range(low, high + (1 if way > 0 else -1), way)]


def matches_naively(pieces, text, at=0):
    """Whether the pieces (a text, `*`, or a list of numbers) cover the text from ``at``; tries every way."""
    if not pieces:
        return at == len(text)
    piece, *rest = pieces
    if piece == "*":
        return any(matches_naively(rest, text, end) for end in range(at, len(text) + 1))
    if isinstance(piece, str):
        return text.startswith(piece, at) and matches_naively(rest, text, at + len(piece))
    if text[at - 1 : at].isdigit() and at:
        return False
    return any(
        text.startswith(number, at)
        and not text[at + len(number) : at + len(number) + 1].isdigit()
        and matches_naively(rest, text, at + len(number))
        for number in piece
    )


ENDS = st.one_of(
    st.integers(0, 1200).map(str), st.integers(0, 30).map("{:02d}".format), st.just("007")
)
RANGES = st.tuples(ENDS, ENDS, st.sampled_from([1, 1, 1, 2, 7]))
PIECES = st.lists(st.one_of(RANGES, st.sampled_from(["*", "a", "_b"])), min_size=1, max_size=4)


@settings(max_examples=150, deadline=None)
@given(PIECES, st.data())
def test_a_range_names_the_numbers_that_are_written_out(drawn, data):
    pieces, glob = [], ""
    for piece in drawn:
        if isinstance(piece, str):
            glob += piece
            pieces.append(piece)
            continue
        if glob.endswith("}"):
            glob, pieces = f"{glob}x", [*pieces, "x"]
        first, last, step = piece
        glob += f"{{{first}..{last}{f'..{step}' if step > 1 else ''}}}"
        pieces.append(written_out(*piece))
    text = "".join(
        data.draw(st.text("ab_019", max_size=3))
        if piece == "*"
        else piece
        if isinstance(piece, str)
        else data.draw(
            st.one_of(
                st.sampled_from(piece),
                st.sampled_from([piece[0], piece[-1]]),
                st.integers(0, 1300).map(str),
            )
        )
        for piece in pieces
    )
    if text:
        assert names(glob, text) == matches_naively(pieces, text)


@settings(max_examples=60, deadline=None)
@given(RANGES)
def test_near_its_ends_a_range_names_what_is_written_out_and_no_other(drawn):
    """Where a digit of an end is left behind, numbers with the same first digits begin, or end."""
    first, last, step = drawn
    expected = written_out(*drawn)
    range_ = f"{first}..{last}..{step}"
    assert read_range(range_).texts() == expected
    near = {
        10**power * (int(end) // 10**power) + off
        for end in drawn[:2]
        for power in range(4)
        for off in range(-2, 12)
    }
    texts = {str(n).zfill(width) for n in near if n >= 0 for width in range(1, 5)}
    assert {text for text in texts if names(f"{{{range_}}}", text)} == texts & {*expected}


@pytest.mark.parametrize(
    ("pattern", "text", "groups"),
    [
        ("layers_{0..11}", "layers_11/w", ("11",)),
        ("layers_{11..0}", "layers_3", ("3",)),
        ("layers_{00..11}", "layers_03", ("03",)),
        ("layers/{0..11..2}/*", "layers/4/w", ("4", "w")),
        ("{0..3,7,x}_w", "7_w", ("7",)),
        ("{0..3,7,x}_w", "2_w", ("2",)),
        ("1{0..3}", "13", ("3",)),
        ("{1..3}{0..3}", "23", ("2", "3")),
        ("*_{0..300}", "a_1_299", ("a_1", "299")),
        ("x[{]0..3[}]", "x{0..3}", ()),
    ],
)
def test_a_range_captures_its_number(pattern, text, groups):
    assert PathPattern(pattern).match(LeafPath(text.split("/"))).groups == groups


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("layers_{0..11}", "layers_12"),
        ("layers_{0..11}", "layers_03"),
        ("layers_{00..11}", "layers_3"),
        ("layers_{0..3}*", "layers_12"),
        ("*{0..3}", "layers12"),
        ("{0..11..2}", "3"),
        ("{0..3,7,x}_w", "5_w"),
    ],
)
def test_a_range_names_no_other_number(pattern, text):
    assert not names(pattern, text)


@pytest.mark.parametrize(
    ("pattern", "says", "advises"),
    [
        ("layers_[0-12]", "0, 1 or 2", "layers_{0..12}"),
        ("layers_[10-12]/w", "one character", "layers_{10..12}/w"),
        ("layers_[00-11]", "0 or 1", "layers_{00..11}"),
        ("[0-3,10-12]", "0, 1, 2 or 3", "{0..3,10..12}"),
        ("l_[!0-12]", "0, 1 or 2", "{0..12}"),
        ("{a,b_[0-12]}", "0, 1 or 2", "b_{0..12}"),
        ("a{b,c", "without its `}`", "[{]"),
        ("{{a,b}", "without its `}`", "[{]"),
        ("a,b}", "without its `{`", "[}]"),
        ("{0..3..0}", "a step of 0", "{0..3}"),
        ("{0..1000000000..7}", "at most", "{0..1000000000}"),
        ("{0.." + "9" * 5000 + "}", "digits at most", "smaller"),
    ],
)
def test_what_is_meant_as_a_range_or_is_half_a_brace_is_refused_with_what_to_write(
    pattern, says, advises
):
    with pytest.raises(PlanError) as refused:
        PathPattern(pattern)
    (problem,) = refused.value.problems
    assert says in f"{problem.what} {problem.why}"
    assert advises in problem.fix


@pytest.mark.parametrize("pattern", ["[0-9]", "[0-3]x", "[a-z0-9]", "[0-9a-f]", "[12]", "[!0-9]"])
def test_classes_of_characters_stay_what_they_were(pattern):
    PathPattern(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "{0..1000000000}",
        "{0..999999999999999999}" * 30,
        "{0..1000000000}_" * 50,
        "{0..1999..2}_" * 20,
        "{a,aa}" * 40,
        "{0..9,{0..99,{0..999}}}" * 20,
        "*{0..1000000}*" * 20 + "b",
    ],
)
def test_no_range_takes_long(pattern):
    began = time.process_time()
    assert not names(pattern, "1a" * 30 + "a" * 40)
    assert not names(pattern, "1" * 40 + "_")
    assert time.process_time() - began < 5


def test_numbers_in_names_are_listed_as_numbers():
    stored = sorted(f"layers_{n}/{leaf}" for n in range(12) for leaf in ("w", "b"))
    leaves = [LeafPath(text.split("/")) for text in stored]
    listed = [str(leaf) for leaf in in_listed_order(leaves)]
    assert listed == [f"layers_{n}/{leaf}" for n in range(12) for leaf in ("b", "w")]


def test_siblings_that_are_not_stored_by_their_text_are_listed_as_they_stand():
    leaves = [LeafPath((key,)) for key in ("count_10", "mu_2", "a")]
    assert in_listed_order(leaves) == leaves
    mixed = [LeafPath((key,)) for key in sorted(["a_1_x", "a_10_x", "a_2_b", "a_2_y"])]
    assert [str(leaf) for leaf in in_listed_order(mixed)] == ["a_1_x", "a_2_b", "a_2_y", "a_10_x"]
