"""Rename: where leaves go, what goes with them, and what stops."""

import pytest

from surgery_cli.errors import PlanError
from surgery_cli.operations.copy import Copy
from surgery_cli.operations.rename import Rename
from surgery_cli.tree.paths import LeafPath
from tests.hand_built_trees import COUNT, B, HandBuilt, W, adam, moved, origins, printed, resolved

DENSE = {"Dense_0": {"kernel": W, "bias": B}, "Dense_1": {"kernel": W, "bias": B}}


def failure(structure, *edits, **plan):
    with pytest.raises(PlanError) as caught:
        resolved(structure, *edits, **plan)
    return str(caught.value)


def problems_of(structure, *edits):
    with pytest.raises(PlanError) as caught:
        resolved(structure, *edits)
    return caught.value.problems


def test_a_leaf_gets_another_path():
    draft = resolved({"a": W, "b": B}, Rename(at="a", to="c"))
    assert origins(draft) == {("c",): "a", ("b",): "b"}


def test_a_renamed_leaf_is_by_reference_and_keeps_its_place_in_the_order():
    draft = resolved({"a": W, "b": B}, Rename(at="a", to="z"))
    assert printed(draft) == ["z", "b"]
    assert all(recipe.is_by_reference for recipe in draft.leaves.values())


def test_a_subtree_moves_with_everything_below_it():
    tree = {"enc": {"layers": [{"w": W, "none": None}], "b/c": B}}
    draft = resolved(tree, Rename(at="enc", to="dec/inner"))
    assert origins(draft) == {
        ("dec", "inner", "layers", 0, "w"): "enc/layers/0/w",
        ("dec", "inner", "layers", 0, "none"): "enc/layers/0/none",
        ("dec", "inner", "b/c"): "enc/b/c",
    }


def test_twins_move_along():
    draft = resolved(adam(DENSE), Rename(at="params/Dense_1", to="params/head"))
    assert moved(draft) == {
        f"{root}/head/{leaf}": f"{root}/Dense_1/{leaf}"
        for root in ("params", "opt_state/0/mu", "opt_state/0/nu")
        for leaf in ("kernel", "bias")
    }


def test_the_slots_of_the_draft_stand_at_the_new_paths():
    draft = resolved(adam(DENSE), Rename(at="params/Dense_1/bias", to="params/Dense_1/b"))
    slots = {str(path): str(slot.param) for path, slot in draft.slots.items()}
    assert slots["opt_state/0/mu/Dense_1/b"] == "params/Dense_1/b"
    assert "opt_state/0/mu/Dense_1/bias" not in slots


@pytest.mark.parametrize(
    ("at", "to", "new"),
    [
        ("params/l_{0..11}", "params/l_{1..12}", lambda n: f"l_{n + 1}"),
        ("params/l_{0..11}", "params/l_{11..0}", lambda n: f"l_{11 - n}"),
        ("params/l_{0..11}", "params/block/{00..22..2}_x", lambda n: f"block/{2 * n:02d}_x"),
        ("params/{l_,k}{0..11}", r"params/\1{100..111}", lambda n: f"l_{n + 100}"),
        ("params/l_{0..11}", r"params/\1[{]0..11}", lambda n: f"{n}{{0..11}}"),
    ],
)
def test_the_numbers_of_a_range_take_the_places_of_others(at, to, new):
    tree = adam({f"l_{n}": {"w": W} for n in range(12)})
    draft = resolved(tree, Rename(at=at, to=to))
    for root in ("params", "opt_state/0/mu", "opt_state/0/nu"):
        for n in range(12):
            stands = LeafPath((*root.split("/"), *new(n).split("/"), "w"))
            stands = next(path for path in draft.leaves if str(path) == str(stands))
            assert str(draft.leaves[stands].home.path) == f"{root}/l_{n}/w"
    assert draft.outcomes[0].twins == {"moved": 24}


def test_a_range_in_a_list_gives_indices():
    draft = resolved({"l": [{"w": W}] * 3}, Rename(at="l/{0..2}", to="l/{2..0}"))
    assert origins(draft) == {("l", n, "w"): f"l/{2 - n}/w" for n in range(3)}
    draft = resolved({"l": [{"w": W}] * 3}, Rename(at="l/{0..2}", to="new/{0..2}"))
    assert origins(draft) == {("new", n, "w"): f"l/{n}/w" for n in range(3)}


@pytest.mark.parametrize(
    ("at", "to", "why"),
    [
        ("params/l_{0..11}", "params/l_{1..11}", "there stand 12 numbers, here 11"),
        ("params/l_*", "params/m_{1..12}", "it has no range of numbers of its own"),
        ("params/l_{0..11}", "params/{0..1}/{0..11}", "there stand 12 numbers, here 2, 12"),
    ],
)
def test_ranges_of_other_sizes_are_refused(at, to, why):
    said = failure(adam({f"l_{n}": {"w": W} for n in range(12)}), Rename(at=at, to=to))
    assert why in said
    assert r"`\1`" in said


def test_two_renames_in_a_row_carry_twins_both_times():
    draft = resolved(
        adam({"a": W}), Rename(at="params/a", to="params/b"), Rename(at="params/b", to="params/c")
    )
    assert moved(draft) == {
        "params/c": "params/a",
        "opt_state/0/mu/c": "opt_state/0/mu/a",
        "opt_state/0/nu/c": "opt_state/0/nu/a",
    }


@pytest.mark.parametrize(
    ("at", "to", "new"),
    [
        ("params/Dense_*/kernel", r"params/Linear_\1/weight", "params/Linear_1/weight"),
        ("params/*/*", r"params/\2/\1", "params/kernel/Dense_1"),
        (r"re:params/Dense_(\d)/(.*)", r"params/\2_\1", "params/kernel_1"),
        (r"re:params/(?:Dense)_(\d)/kernel", r"params/w\g<1>0", "params/w10"),
        ("**/Dense_1", r"\1/last", "params/last/kernel"),
        ("params/**", r"\1", "Dense_1/kernel"),
        ("params/**/kernel", r"params/\1/w", "params/Dense_1/w"),
    ],
)
def test_captured_parts_stand_where_they_are_referred_to(at, to, new):
    draft = resolved({"params": {"Dense_1": {"kernel": W}}}, Rename(at=at, to=to))
    assert printed(draft) == [new]


def test_two_stars_that_stood_for_no_key_add_none():
    draft = resolved({"kernel": W, "a": {"kernel": B}}, Rename(at="**/kernel", to=r"\1/w"))
    assert printed(draft) == ["w", "a/w"]


def test_a_captured_index_stays_an_index():
    tree = {"layers": [{"w": W}, {"w": B}], "x": W}
    draft = resolved(tree, Rename(at="layers/*", to=r"blocks/\1"))
    assert origins(draft) == {
        ("blocks", 0, "w"): "layers/0/w",
        ("blocks", 1, "w"): "layers/1/w",
        ("x",): "x",
    }


def test_an_index_becomes_part_of_a_name():
    draft = resolved({"layers": [{"w": W}, {"w": B}]}, Rename(at="layers/*", to=r"layer_\1"))
    assert origins(draft) == {("layer_0", "w"): "layers/0/w", ("layer_1", "w"): "layers/1/w"}


def test_digits_under_a_list_that_exists_are_an_index():
    draft = resolved({"layers": [W, W], "extra": B}, Rename(at="extra", to="layers/2"))
    assert origins(draft)[("layers", 2)] == "extra"


def test_digits_under_a_dict_that_exists_are_a_name():
    draft = resolved({"layers": {"0": W}, "extra": B}, Rename(at="extra", to="layers/1"))
    assert origins(draft)[("layers", "1")] == "extra"


def test_digits_in_a_new_place_are_a_name():
    draft = resolved({"a": W}, Rename(at="a", to="layers/0"))
    assert origins(draft) == {("layers", "0"): "a"}


def test_a_place_that_exists_keeps_a_slash_inside_its_key():
    tree = {"transformer/layer_0": {"w": W}, "b": B}
    draft = resolved(tree, Rename(at="b", to="transformer/layer_0/b"))
    assert origins(draft)[("transformer/layer_0", "b")] == "b"


def test_percent_2f_makes_a_slash_inside_a_new_key():
    draft = resolved({"a": W}, Rename(at="a", to="x%2Fy/100%25"))
    assert origins(draft) == {("x/y", "100%"): "a"}


def test_a_star_in_brackets_is_a_star_in_a_new_key():
    assert printed(resolved({"a*b": W}, Rename(at="a[*]b", to="c[*]d"))) == ["c*d"]


@pytest.mark.parametrize("to", ["{c,d}", "c_{d", "x/{}", "x_{1..}"])
def test_braces_that_are_no_range_are_refused_and_in_brackets_a_part_of_a_name(to):
    assert "has no alternatives" in failure({"a": W}, Rename(at="a", to=to))
    draft = resolved({"a": W}, Rename(at="a", to=to.replace("{", "[{]")))
    assert printed(draft) == [to]


def test_a_percent_sign_alone_is_itself():
    draft = resolved({"a": W}, Rename(at="a", to="a%20b"))
    assert origins(draft) == {("a%20b",): "a"}


def test_a_captured_key_with_a_slash_stays_one_key():
    draft = resolved({"enc": {"a/b": {"w": W}}}, Rename(at="enc/**/w", to=r"dec/\1/v"))
    assert origins(draft) == {("dec", "a/b", "v"): "enc/a/b/w"}


def test_a_captured_key_is_not_split_by_a_place_that_prints_alike():
    tree = {"enc": {"a/b": W}, "dec": {"a": {"b": {"c": B}}}}
    draft = resolved(tree, Rename(at="enc/**", to=r"dec/\1"))
    assert origins(draft)[("dec", "a/b")] == "enc/a/b"


def test_a_target_that_means_two_places_stops():
    tree = {"a/b": {"w": W}, "a": {"b": {"w": W}}, "c": B}
    said = failure(tree, Rename(at="c", to="a/b/c"))
    assert "means two places" in said
    assert "a%2Fb" in said


def test_two_subtrees_are_exchanged_with_their_twins():
    moves = {"params/Dense_0": "params/Dense_1", "params/Dense_1": "params/Dense_0"}
    found = moved(resolved(adam(DENSE), Rename(moves=moves)))
    assert found["params/Dense_0/kernel"] == "params/Dense_1/kernel"
    assert found["params/Dense_1/kernel"] == "params/Dense_0/kernel"
    assert found["opt_state/0/mu/Dense_0/bias"] == "opt_state/0/mu/Dense_1/bias"
    assert len(found) == 12


def test_three_leaves_rotate():
    moves = {"a": "b", "b": "c", "c": "a"}
    draft = resolved({"a": W, "b": B, "c": COUNT}, Rename(moves=moves))
    assert moved(draft) == {"b": "a", "c": "b", "a": "c"}


def test_elements_of_a_list_are_exchanged():
    draft = resolved(
        {"layers": [{"w": W}, {"w": B}]},
        Rename(moves={"layers/0": "layers/1", "layers/1": "layers/0"}),
    )
    assert origins(draft) == {("layers", 1, "w"): "layers/0/w", ("layers", 0, "w"): "layers/1/w"}


def test_a_node_moves_below_its_old_path():
    draft = resolved({"params": {"w": W}}, Rename(at="params", to="params/params"))
    assert origins(draft) == {("params", "params", "w"): "params/w"}


def test_a_leaf_moves_below_its_own_old_path():
    assert printed(resolved({"a": W}, Rename(at="a", to="a/b"))) == ["a/b"]


def test_an_empty_dict_takes_leaves():
    draft = resolved({"a": {}, "b": W}, Rename(at="b", to="a/b"))
    assert origins(draft) == {("a", "b"): "b"}
    assert draft.removed == []


def test_a_list_that_lost_an_element_closes_the_gap_and_says_so():
    tree = {"layers": [{"w": W}, {"w": B}, {"w": COUNT}], "x": W}
    draft = resolved(tree, Rename(at="layers/1", to="head"))
    assert origins(draft) == {
        ("layers", 0, "w"): "layers/0/w",
        ("head", "w"): "layers/1/w",
        ("layers", 1, "w"): "layers/2/w",
        ("x",): "x",
    }
    assert "'layers' closes its gap" in draft.notes[0]


def test_a_node_whose_leaves_all_moved_away_vanishes():
    draft = resolved({"a": {"b": {"w": W}}, "c": B}, Rename(at="a/b/w", to="w"))
    assert printed(draft) == ["w", "c"]


def test_exceptions_stay():
    edit = Rename(at="params/*", to=r"params/x_\1", except_="params/Dense_0")
    draft = resolved({"params": DENSE}, edit)
    assert moved(draft) == {
        "params/x_Dense_1/kernel": "params/Dense_1/kernel",
        "params/x_Dense_1/bias": "params/Dense_1/bias",
    }


def test_twins_that_are_named_go_where_they_are_sent():
    moves = {"params/a": "params/b", "opt_state/0/mu/a": "opt_state/0/mu/c"}
    draft = resolved(adam({"a": W}), Rename(moves=moves, twins="named"))
    assert moved(draft) == {
        "params/b": "params/a",
        "opt_state/0/mu/c": "opt_state/0/mu/a",
        "opt_state/0/nu/b": "opt_state/0/nu/a",
    }


@pytest.mark.parametrize(
    ("tree", "edit", "said"),
    [
        ({"a": W, "b": B}, Rename(at="a", to="b"), ["'a' and 'b' would both stand at 'b'"]),
        (
            {"a": {"x": W}, "b": {"x": B}},
            Rename(at="*/x", to="y"),
            ["'a/x' and 'b/x' would both stand at 'y'"],
        ),
        (
            {"a": W, "b": B},
            Rename(at="a", to="b/c"),
            ["'b/c' cannot stand below 'b'", "float32[3]"],
        ),
        (
            {"a": W, "b": {"c": B}},
            Rename(at="a", to="b"),
            ["'b/c' cannot stand below 'b'", "'a'"],
        ),
        ({"a": W, "b": None}, Rename(at="a", to="b/c"), ["'b/c' cannot stand below 'b'", "None"]),
        (
            {"a": {"0": W}, "l": [B]},
            Rename(moves={"a": "l/x"}),
            ["'x' in 'l/x' cannot be a name", "'l' is a list"],
        ),
        (
            {"a": {"x": W}, "l": [B, B]},
            Rename(at="l", to="a"),
            ["'a' would have both names and indices"],
        ),
        (
            {"a": W, "l": [B, B]},
            Rename(at="a", to="l/5"),
            ["the list 'l' would have the indices 0, 1, 5"],
        ),
        ({"a": W}, Rename(at="a", to=r"b\1"), [r"'b\1' refers to part 1", "captures 0 parts"]),
        ({"a": W}, Rename(at="*", to=r"\2"), [r"'\2' refers to part 2", "captures 1 part"]),
        ({"a": W}, Rename(at="a", to="/b"), ["'/b' is no place"]),
        ({"a": W}, Rename(at="a", to="b//c"), ["'b//c' is no place"]),
        ({"a": W}, Rename(at="a", to="b/"), ["'b/' is no place"]),
        ({"a": {"b": W}}, Rename(at="a/*", to="c/*"), ["'c/*' is a pattern", r"write `\1`"]),
        ({"a": W}, Rename(at="a"), ["does not say where to"]),
        ({"a": W}, Rename(at="a", to="b", moves={"a": "b"}), ["both `moves` and `at`"]),
        ({"a": W}, Rename(at="a", to="a"), ["'a' already stands there"]),
        (
            {"a": {"w": W}},
            Rename(moves={"a": "b", "a/w": "c"}),
            ["'a/w' would move to both 'b/w' and 'c'"],
        ),
        ({"a": W}, Rename(moves={"a": "b", "x": "y"}), ["'x' matches nothing"]),
        ({"a": W}, Rename(at="a", to="b", optimizer="reset"), ["takes no `optimizer`"]),
        (
            {"opt_state": [{"count": COUNT}, {"trace": W}]},
            Rename(at="opt_state/0", to="old"),
            ["the list 'opt_state' would keep only index 1", "never renumbered"],
        ),
    ],
)
def test_what_cannot_be_stops_with_both_sides(tree, edit, said):
    message = failure(tree, edit)
    for words in said:
        assert words in message


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("opt_state/0/mu/a", "opt_state/0/mu/c"),
        ("opt_state/0/mu/a", "elsewhere/a"),
        ("opt_state/0/mu/a", "opt_state/0/nu/c"),
    ],
)
def test_a_twin_that_would_part_from_its_param_stops(old, new):
    said = failure(adam({"a": W, "b": B}), Rename(at=old, to=new))
    assert f"'{old}' cannot become '{new}'" in said
    assert "mirrors 'params' leaf by leaf" in said
    assert "`twins: named`" in said


def test_a_whole_state_moves_without_its_params():
    draft = resolved(adam({"a": W, "b": B}), Rename(at="opt_state", to="old/opt_state"))
    assert {str(s.node): str(s.param) for s in draft.slots.values()} == {
        "old/opt_state/0/mu": "params/b",
        "old/opt_state/0/nu": "params/b",
    }


def test_a_param_and_its_twins_may_all_be_named_if_they_go_alike():
    roots = ("params", "opt_state/0/mu", "opt_state/0/nu")
    moves = {f"{root}/a": f"{root}/c" for root in roots}
    draft = resolved(adam({"a": W, "b": B}), Rename(moves=moves, twins="named"))
    assert moved(draft) == {f"{root}/c": f"{root}/a" for root in roots}


def test_collisions_in_the_optimizer_state_stop():
    structure = adam({"a": W})
    structure["opt_state"][0]["mu"] = {"a": W, "b": B}
    said = failure(
        structure, Rename(moves={"opt_state/0/mu/a": "opt_state/0/mu/b"}), params="params"
    )
    assert "'opt_state/0/mu/a' and 'opt_state/0/mu/b' would both stand" in said


def test_many_collisions_of_one_series_are_said_once():
    tree = {"a": {str(i): W for i in range(50)}}
    said = failure(tree, Rename(at="a/*", to="b"))
    assert said.startswith("'a/0' and 'a/{1..49}' would both stand at 'b'")
    assert said.count("would both stand") == 1


def test_a_node_that_joins_another_is_said():
    tree = {"a": {"x": W}, "b": {"y": W, "z": {"w": W}}, "c": {}}
    draft = resolved(tree, Rename(at="a", to="b"))
    assert draft.notes == ("'a' joins what stands at 'b': 2 leaves there already",)
    assert resolved(tree, Copy(at="b/z", to="a")).notes == (
        "'b/z' joins what stands at 'a': 1 leaf there already",
    )


def test_a_node_that_joins_nothing_is_not_spoken_of():
    tree = {"a": {"x": W}, "b": {"y": W}, "c": {}}
    assert resolved(tree, Rename(moves={"a": "b", "b": "a"})).notes == ()
    assert resolved(tree, Rename(at="a", to="c")).notes == ()
    assert resolved(tree, Rename(at="a/x", to="b/x")).notes == ()
    assert resolved(tree, Rename(at="a", to="b/new")).notes == ()


def test_a_copy_is_not_told_to_move():
    (problem,) = problems_of({"a": {"x": W}, "b": {"x": W}}, Copy(at="a", to="b"))
    assert problem.fix == "`delete` 'b' first, or copy to another place"


def test_leaves_that_cannot_stand_below_others_are_named_in_order_without_their_twins():
    structure = adam({"a": W, "b": B})
    found = problems_of(structure, Rename(at="params/a", to="params/b/x"))
    assert [problem.path for problem in found] == ["params/b/x"]


def test_every_target_that_cannot_be_read_is_reported():
    said = failure({"a": W, "b": B}, Rename(moves={"a": r"x\1", "b": r"y\1"}))
    assert r"'x\1'" in said
    assert r"'y\1'" in said


def test_many_leaves_move_by_one_pattern():
    tree = {f"layer_{i}": {f"w{j}": W for j in range(100)} for i in range(200)}
    draft = resolved(HandBuilt(tree), Rename(at="layer_*/*", to=r"blocks/\1/\2"))
    assert len(draft.leaves) == 20_000
    assert str(draft.leaves[next(iter(draft.leaves))].home.path) == "layer_0/w0"


def test_the_empty_leaf_that_stands_for_a_node_moves_with_it():
    tree = {
        "params": {"a": {"kernel": W, "bias": B}, "head": {"kernel": W}},
        "opt_state": [
            {
                "count": COUNT,
                "mu": {"a": None, "head": {"kernel": W}},
                "nu": {"a": None, "head": {"kernel": W}},
            }
        ],
    }
    draft = resolved(tree, Rename(at="params/a", to="params/b"))
    assert moved(draft) == {
        "params/b/kernel": "params/a/kernel",
        "params/b/bias": "params/a/bias",
        "opt_state/0/mu/b": "opt_state/0/mu/a",
        "opt_state/0/nu/b": "opt_state/0/nu/a",
    }


def test_subtrees_that_collide_are_named_once_and_not_leaf_by_leaf():
    block = {"kernel": W, "bias": B, "inner": {"scale": B}}
    said = failure({"a": block, "b": block, "c": W}, Rename(at="a", to="b"))
    assert said.count("would both stand at") == 1
    assert "'b' and 'a' would both stand at 'b'" in said or (
        "'a' and 'b' would both stand at 'b'" in said
    )
    assert "moves: {a: b, b: a}" in said


def test_a_collision_of_some_leaves_names_these_leaves():
    more = {"kernel": W, "bias": B, "extra": B}
    said = failure({"a": {"kernel": W, "bias": B}, "b": more}, Rename(at="a", to="b"))
    assert said.count("would both stand at") == 2
    assert "moves: {a/kernel: b/kernel, b/kernel: a/kernel}" in said


def test_two_subtrees_that_move_to_one_place_are_named_once():
    block = {"kernel": W, "bias": B}
    said = failure({"a": block, "b": block}, Rename(at=("a", "b"), to="new"))
    assert said.count("would both stand at 'new'") == 1


def test_twins_that_collide_with_their_params_are_not_listed_beside_them():
    said = failure(adam({"a": {"w": W}, "b": {"w": W}}), Rename(at="params/a", to="params/b"))
    assert "moves: {params/a: params/b, params/b: params/a}" in said
    assert "opt_state" not in said


def test_a_subtree_moves_with_its_params_and_their_twins_inside():
    tree = {"state": adam({"a": W, "b": B}), "seed": COUNT}
    draft = resolved(tree, Rename(at="state/*", to=r"\1"), Rename(at="params/a", to="params/c"))
    assert {new: old for new, old in moved(draft).items() if new.startswith("opt_state/0")} == {
        "opt_state/0/count": "state/opt_state/0/count",
        "opt_state/0/mu/b": "state/opt_state/0/mu/b",
        "opt_state/0/mu/c": "state/opt_state/0/mu/a",
        "opt_state/0/nu/b": "state/opt_state/0/nu/b",
        "opt_state/0/nu/c": "state/opt_state/0/nu/a",
    }


def test_what_is_left_out_of_a_state_goes_on_standing_for_its_params():
    tree = adam({"a": {"w": W}, "b": B})
    tree["opt_state"][0] |= {moment: {"a": None, "b": B} for moment in ("mu", "nu")}
    rename = Rename(at="state/*", to=r"\1")
    draft = resolved({"state": tree}, rename, Rename(at="params/a", to="params/c"))
    assert origins(draft)["opt_state", 0, "mu", "c"] == "state/opt_state/0/mu/a"


def test_params_and_twins_that_a_pattern_would_part_are_refused():
    said = failure(adam({"a": {"k": W}}), Rename(at="**/k", to=r"w/\1"))
    assert "'opt_state/0/mu/a/k' cannot become 'w/opt_state/0/mu/a'" in said


@pytest.mark.parametrize("params", [W, {}], ids=["one bare array", "emptied"])
def test_params_that_are_one_leaf_move_as_a_whole_and_their_state_stays(params):
    draft = resolved(adam(params), Rename(at="params", to="model/weights"), params="params")
    assert moved(draft) == {"model/weights": "params"}
