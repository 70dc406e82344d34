"""Small promises that no test held until a mutant of the code showed it (`make mutants`)."""

import runpy
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from surgery_cli.compute.host import HostKit
from surgery_cli.draft.effect import (
    Keeps,
    Means,
    Rearranges,
    Scales,
    Sets,
    Shifts,
    constant_after,
    keeps_size,
    keeps_start,
)
from surgery_cli.draft.expression import Made
from surgery_cli.draft.kernels.cut import Cut, Grow, Steps
from surgery_cli.draft.kernels.join import Stack
from surgery_cli.draft.kernels.scale import (
    FollowFactor,
    ScaleAboveStart,
    _largest_power,
    power_of,
    smallest_factor,
)
from surgery_cli.draft.kernels.take import Take
from surgery_cli.engine.digests import (
    Digester,
    digest_of_text,
    digest_reading,
    leaf_digest,
    refuse_many_blocks,
)
from surgery_cli.errors import CheckpointError, PlanError, ValueRefusal
from surgery_cli.inputs.limits import Limit
from surgery_cli.operations.clip import Clip
from surgery_cli.operations.collisions import Collision, by_subtree
from surgery_cli.operations.copy import Copy
from surgery_cli.operations.delete import Delete
from surgery_cli.operations.numbered import numbered_patterns, numbered_places
from surgery_cli.operations.rename import Rename
from surgery_cli.operations.transpose import Permutation
from surgery_cli.tree import paths as patterns
from surgery_cli.tree.number_ranges import read_range
from surgery_cli.tree.paths import LeafPath, PathPattern
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.tree.targets import Places, Target
from tests.hand_built_trees import W, adam, resolved
from tests.operations.value_edits import KERNEL, computed, edited, stored

DOCS = Path(__file__).resolve().parents[2] / "docs"
LEAF = LeafSpec(kind=LeafKind.ARRAY, shape=(2, 3, 4), dtype="float32")


def path(*keys):
    return LeafPath(keys)


def test_the_exact_pattern_of_a_path_means_it_and_nothing_else():
    odd = path("a*b", "[x]", "{0..1}", "c?d", "e%f/g")
    assert odd.exact_pattern == "a[*]b/[[]x]/[{]0..1[}]/c[?]d/e%25f%2Fg"
    pattern = PathPattern(odd.exact_pattern)
    assert pattern.match(odd)
    assert not pattern.match(path("aXb", "x", "0", "cXd", "e%f/g"))


def test_a_range_says_its_step_again():
    assert read_range("0..6..2").padded(2) == "{00..06..2}"
    assert read_range("0..6").padded(2) == "{00..06}"
    assert [read_range(text).lengths for text in ("0..9", "0..10", "7..1000")] == [1, 2, 4]


@pytest.mark.parametrize(
    ("takes_zeros", "named"), [(False, {"0", "9", "11"}), (True, {"0", "00", "9", "05", "11"})]
)
def test_zeros_in_front_of_a_number_are_taken_only_where_asked_for(takes_zeros, named):
    pattern = PathPattern("{0..11}", takes_zeros=takes_zeros)
    tried = ("0", "00", "9", "05", "11", "12")
    assert {text for text in tried if pattern.match(path(text))} == named


def test_a_part_of_a_key_that_was_spelled_out_is_the_key_itself():
    pattern = PathPattern("x/a*%25")
    found = pattern.match(path("x", "a/b%"))
    places = Places([path("x", "a/b%")])
    assert Target(r"y/z-\1").place(found, pattern, places) == path("y", "z-", "b")
    assert Target(r"y%2F/z-\1").place(found, pattern, places) == path("y/", "z-/b")


def test_a_reference_in_either_spelling_takes_its_part():
    pattern = PathPattern("{a,b}/*/*")
    assert Target(r"x/\1").leaves_out(pattern, 3) == [1, 2]
    assert Target(r"x/\g<2>").leaves_out(pattern, 3) == [0, 2]


def test_only_a_regular_expression_that_matches_a_node_has_its_time_counted(monkeypatch):
    counted = []
    monkeypatch.setattr(patterns, "time_limit", lambda text: counted.append(text) or nullcontext())
    assert PathPattern("re:a/.*").matches(path("a", "b"))
    assert PathPattern("a/*").matches(path("a", "b"))
    assert counted == ["re:a/.*"]


@pytest.mark.parametrize(
    ("paths", "text"),
    [
        ([path("l_1"), path("l_2")], "l_{1..2}"),
        ([path("l_1")], ["l_1"]),
        ([path("l_1"), path("l_2", "x")], ["l_1", "l_2/x"]),
        ([path("l_1"), path("l_3")], ["l_1", "l_3"]),
        ([path("a_1", "b_1"), path("a_2", "b_2")], ["a_1/b_1", "a_2/b_2"]),
        ([path("a?", 0), path("a?", 1)], "a[?]/{0..1}"),
    ],
)
def test_paths_are_written_as_a_series_only_where_they_are_one(paths, text):
    assert numbered_patterns(paths) == text


def test_places_have_no_wildcards_to_hide():
    assert numbered_places([path("a?", 0), path("a?", 1)]) == {"to": "a?/{0..1}", "list": True}
    assert numbered_places([path("a", "0"), path("a", "1")]) == {"to": "a/{0..1}"}


def test_an_axis_that_is_taken_out_of_a_permutation_moves_those_behind_it():
    assert Permutation((2, 0, 1)).without(1, LEAF) == (Permutation((1, 0)), 2)
    assert Permutation((1, 2, 0)).without(0, LEAF) == (Permutation((0, 1)), 2)
    assert Permutation((0, 2, 1)).without(2, LEAF) == (Permutation((0, 1)), 1)


def test_one_value_is_a_range_to_clip_to_and_an_axis_must_be_there():
    leaf = np.array([0.0, 1.0], np.float32)
    assert resolved({"w": NUMBERS}, Clip(at=("w",), min=0.5, max=0.5)).leaves
    with pytest.raises(PlanError, match="is above"):
        resolved({"w": NUMBERS}, Clip(at=("w",), min=0.5, max=0.25))
    np.testing.assert_array_equal(edited(Clip(min=0.5, max=0.5), leaf), [0.5, 0.5])
    assert Clip(at=("w",), max=0.5).effect == Shifts(keeps_signs=True)
    assert Clip(at=("w",), max=0.0).effect == Shifts(keeps_signs=True)
    assert Clip(at=("w",), max=-0.5).effect == Shifts(keeps_signs=False)
    assert Clip(at=("w",), norm=1.0, axis=2).output(LEAF) == LEAF
    with pytest.raises(PlanError):
        Clip(at=("w",), norm=1.0, axis=3).output(LEAF)


def test_what_is_taken_along_and_across_an_axis():
    assert Take(1, (2, 0)).along(1, LEAF) == (Take(0, (2, 0)), 1)
    assert Take(1, (2, 0)).along(0, LEAF) == (Cut.whole(0, LEAF), 0)
    assert Take(0, (1, 0)).without(0, LEAF) == (Take(0, (0, 1, 2)), 0)
    assert Take(1, (2, 1, 0)).without(1, LEAF) == (Take(0, (0, 1)), 1)
    assert Take(1, (2, 1, 0)).without(0, LEAF) == (Take(0, (2, 1, 0)), 0)
    assert Take(0, (0, 0)).without(0, LEAF) is None
    flat = LeafSpec(kind=LeafKind.ARRAY, shape=(2,), dtype="float32")
    assert Take(0, (1, 0)).without(0, flat) is None
    square = LeafSpec(kind=LeafKind.ARRAY, shape=(2, 3), dtype="float32")
    assert Take(0, (1, 0)).without(0, square) == (Take(0, (0, 1, 2)), 0)


def test_a_cut_of_what_was_taken_in_even_steps_is_one_cut():
    whole = Steps(0, 3, 1)
    cut = Take(0, (1, 3, 5)).followed_by(Cut((whole,)))
    assert cut == Cut((Steps(1, 3, 2),))
    assert Take(0, (1, 3, 4)).followed_by(Cut((whole,))) is None


def test_what_effects_keep():
    assert [
        keeps_size(effect) for effect in (Keeps(), Means(), Rearranges(), Sets(0.0), Scales(0.5))
    ] == [
        *(True, True, True, False, False),
    ]
    assert keeps_start(Rearranges(), 0.1)
    assert constant_after(Scales(0.5, above=0.1), 0.3) == pytest.approx(0.1 + 0.5 * 0.2)
    assert constant_after(Scales(0.0, above=0.1), None) == pytest.approx(0.1)
    assert constant_after(Scales(None, above=0.1), 0.1) == 0.1
    assert constant_after(Rearranges(), 2.0) == 2.0


def test_what_is_left_of_a_start_stays_where_elements_only_change_places():
    assert keeps_start(Rearranges(Take(0, (1, 0))), 0.1)
    assert not keeps_start(Rearranges(Grow(0, 0, 2, 1)), 0.1)
    assert not any(keeps_start(effect, 0.1) for effect in (Shifts(), Means(), Sets(0.1), Keeps()))


def test_a_rearrangement_regroups_if_its_map_does_and_without_one_nothing():
    assert Rearranges(Stack(0, 2)).regroups
    assert not Rearranges(Take(0, (1, 0))).regroups
    assert not Rearranges().regroups


@pytest.mark.parametrize(("by", "is_refused"), [(1000.0, True), (2.0, False), (0.001, False)])
def test_a_twin_whose_start_hides_what_it_gathered_is_not_made_rounding(by, is_refused):
    leaf = np.array([0.1, 0.1 + 1e-5], np.float32)
    kernel = ScaleAboveStart(by, 0.1, is_even=True, blur=1e-5)
    recipe = Made(kernel, (stored(leaf),), stored(leaf).spec, KERNEL)
    if not is_refused:
        computed(recipe, {KERNEL: leaf})
        return
    with pytest.raises(ValueRefusal, match="what is left of its start hides what it gathered"):
        computed(recipe, {KERNEL: leaf})


@pytest.mark.parametrize("order", [1, -1])
def test_each_exception_must_leave_out_something_whatever_stands_before_it(order):
    tree = {"a": {"x": NUMBERS, "y": NUMBERS}, "b": NUMBERS}
    with pytest.raises(PlanError, match="the exception 'b' leaves nothing out"):
        resolved(tree, Delete(at=("a/*",), except_=("a/x", "b")[::order]))


@pytest.mark.parametrize("order", [1, -1])
def test_a_text_that_means_two_places_is_refused_whatever_stands_before_it(order):
    tree = {"a": {"x": NUMBERS}, "a/x": NUMBERS, "b": NUMBERS}
    with pytest.raises(PlanError, match="'a/x' means 2 places"):
        resolved(tree, Delete(at=("b*", "a/x")[::order]))


def test_powers_of_factors():
    kit = HostKit()
    factor = np.array([0.0, 2.0, -4.0], np.float32)
    assert smallest_factor(factor, kit) == 2.0
    assert smallest_factor(factor, kit, 2) == 4.0
    assert smallest_factor(factor, kit, -1) == 0.25
    assert smallest_factor(np.zeros(2, np.float32), kit) == np.inf
    assert _largest_power(factor, kit, 1) == 4.0
    assert _largest_power(factor, kit, -1) == 0.5
    assert (power_of(-2.0, 1, even=False), power_of(-2.0, 1, even=True)) == (-2.0, 2.0)
    assert (power_of(1.0, 1, even=False), power_of(-1.0, 3, even=False)) == (1.0, -1.0)
    assert (power_of(0.0, 1, even=True), power_of(1e-300, 2, even=True)) == (None, None)
    assert ScaleAboveStart(1.0, 0.1, is_even=True).is_identity([LEAF], LEAF)
    assert not ScaleAboveStart(2.0, 0.1, is_even=True).is_identity([LEAF], LEAF)


def moved(leaves, at, to):
    """The paths after a rename of a tree of these leaves."""
    return {str(found) for found in resolved(leaves, Rename(at=(at,), to=to)).leaves}


NUMBERS = LeafSpec(kind=LeafKind.ARRAY, shape=(2,), dtype="float32")
TEXT = LeafSpec(kind=LeafKind.STRING, dtype="str")


def test_a_bare_leaf_may_move_below_a_key_and_nothing_beside_it():
    assert moved(NUMBERS, "re:", "a/b") == {"a/b"}
    with pytest.raises(PlanError, match="has no place for others beside it"):
        resolved(NUMBERS, Copy(at=("re:",), to="a/b"))


def test_keys_that_a_leaf_brings_along_may_be_odd_unless_its_name_gets_worse():
    assert moved({"w": {"..": NUMBERS}}, "w", "v") == {"v/.."}
    with pytest.raises(PlanError, match="cannot be stored"):
        moved({"w": {"x": NUMBERS}}, "w", "..")


def test_a_subtree_below_a_leaf_is_one_problem():
    with pytest.raises(PlanError) as refused:
        resolved({"w": NUMBERS, "v": {"a": NUMBERS, "b": NUMBERS}}, Rename(at=("v",), to="w/x"))
    assert [problem.what for problem in refused.value.problems] == ["'w/x' cannot stand below 'w'"]


def test_text_has_an_address_of_its_own_and_numbers_need_none():
    assert moved({"w": NUMBERS}, "w", "a~b") == {"a~b"}
    with pytest.raises(PlanError, match="could not be restored"):
        moved({"w": TEXT}, "w", "a~b")


def test_whole_subtrees_that_collide_are_named_as_such():
    def pair(first, second):
        return [
            Collision(path(*first, key), path(*second, key), path(*first, key))
            for key in ("x", "y")
        ]

    both = [path(top, key) for top in ("a", "b") for key in ("x", "y")]
    places = [(leaf, path("b", leaf[1])) for leaf in both]
    found = by_subtree(pair(("b",), ("a",)), places, both)
    assert found == [Collision(path("b"), path("a"), path("b"))]
    more = [*both, path("b", "z")]
    kept = by_subtree(pair(("b",), ("a",)), [*places, (more[-1], more[-1])], more)
    assert kept == pair(("b",), ("a",))


def test_collisions_are_lifted_while_their_last_keys_are_one():
    assert Collision(path("a", "x"), path("b", "x"), path("c", "x")).lifted() == Collision(
        path("a"), path("b"), path("c")
    )
    assert Collision(path("a", "x"), path("b", "x"), path("c", "y")).lifted() is None
    assert Collision(path("a", "x"), path("x"), path("c", "x")).lifted() is None


def test_no_slot_is_known_of_a_leaf_that_is_gone():
    """Of an empty dict in the params that is filled, the holes in the optimizer's slots are filled, too."""
    draft = resolved(adam({"a": {}, "b": W}), Rename(at=("params/b",), to="params/a/b"))
    assert {str(leaf) for leaf in draft.leaves} >= {"params/a/b", "opt_state/0/mu/a/b"}
    assert set(draft.slots) <= set(draft.leaves)


@pytest.mark.parametrize("fresh", [0.0, None])
def test_places_whose_factor_is_zero_are_started_anew_and_are_no_loss(fresh):
    """Also where all factors are, and beside factors so small that other values could be lost."""
    leaf = np.array([1.0, 2.0], np.float16)
    for factor, expected in (
        ([0.0, 0.0], leaf if fresh is None else [0.0, 0.0]),
        ([0.0, 0.25], [1.0 if fresh is None else 0.0, 0.5]),
        ([1.0, 0.25], [1.0, 0.5]),
    ):
        by = np.array(factor, np.float32)
        recipe = Made(
            FollowFactor(1, fresh=fresh),
            (stored(leaf), stored(by, path("by"))),
            stored(leaf).spec,
            KERNEL,
        )
        found = computed(recipe, {KERNEL: leaf, path("by"): by})
        np.testing.assert_array_equal(found, expected)


def test_a_block_that_comes_in_parts_is_digested_as_one_that_comes_whole():
    values = np.arange(24, dtype=np.float32).reshape(4, 6)
    spec = LeafSpec(kind=LeafKind.ARRAY, shape=(4, 6), dtype="float32")
    whole, cut = Digester(spec, (2, 6)), Digester(spec, (2, 6))
    for start in (0, 2):
        rows = slice(start, start + 2), slice(0, 6)
        whole.add(rows, values[rows])
    for start in range(4):
        rows = slice(start, start + 1), slice(0, 6)
        cut.add_part(rows, values[rows])
    assert cut.result() == whole.result()
    assert sorted(whole.blocks) == [(0, 0), (2, 0)]
    known = [window for window, _ in whole.known]
    assert known == [(slice(0, 2), slice(0, 6)), (slice(2, 4), slice(0, 6))]


def test_blocks_are_counted_before_any_comes():
    spec = LeafSpec(kind=LeafKind.ARRAY, shape=(1 << 12, 1 << 12), dtype="float32")
    refuse_many_blocks(
        spec, (1 << 12,)
    )  # of a record that has fewer axes: a mismatch, which is said elsewhere
    with pytest.raises(CheckpointError, match="digest on record"):
        Digester(spec, (1, 1))


def test_the_digest_of_a_text_is_of_what_is_stored():
    class Source:
        def read(self, path, window=None):
            return "stored"

    text = LeafSpec(kind=LeafKind.STRING, dtype="str")
    empty = LeafSpec(kind=LeafKind.EMPTY, empty="None")
    for spec, said in ((text, "stored"), (empty, "None")):
        found = leaf_digest(Source(), path("a"), spec, digest_reading(spec, 1 << 20))
        assert found == digest_of_text(said)


def test_every_limit_has_the_figure_of_its_page():
    made = runpy.run_path(str(DOCS / "make_limits.py"))["page"]()
    assert made == (DOCS / "limits.md").read_text("utf-8")


def test_an_error_of_a_limit_says_a_round_value_that_lets_it_through_and_what_else_is_wrong():
    least = Limit("places", 10, "places", "an axis", "no more are needed")
    assert "--limit places=1300000`" in least.refusal(1_234_567, "it").problems[0].fix
    assert least.refusal(12, "it").problems[0].fix.endswith("else it is damaged")
    assert least.refusal(12, "it", PlanError).problems[0].fix.endswith("is not what it should be")
