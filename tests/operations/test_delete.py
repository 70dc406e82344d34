"""Delete: what goes, what goes with it, and what stays in its place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surgery_cli.errors import PlanError
from surgery_cli.operations.delete import Delete
from surgery_cli.operations.rename import Rename
from tests.hand_built_trees import COUNT, B, W, adam, origins, printed, resolved

DENSE = {"Dense_0": {"kernel": W, "bias": B}, "Dense_1": {"kernel": W, "bias": B}}


def empties(draft):
    return {
        str(path): recipe.spec.empty for path, recipe in draft.leaves.items() if recipe.spec.empty
    }


def failure(structure, *edits):
    with pytest.raises(PlanError) as caught:
        resolved(structure, *edits)
    return str(caught.value)


def test_a_leaf_goes_and_the_rest_stays():
    draft = resolved({"a": {"x": W, "y": B}, "b": B}, Delete(at="a/x"))
    assert origins(draft) == {("a", "y"): "a/y", ("b",): "b"}
    assert draft.removed == [("a", "x")]


def test_a_named_node_goes_as_a_whole():
    draft = resolved({"params": DENSE, "step": COUNT}, Delete(at="params/Dense_1"))
    assert printed(draft) == ["params/Dense_0/kernel", "params/Dense_0/bias", "step"]


def test_the_twins_of_a_param_go_with_it():
    draft = resolved(adam(DENSE), Delete(at="params/Dense_1"))
    assert [text for text in printed(draft) if "Dense_1" in text] == []
    assert len(draft.leaves) == 9
    assert {str(slot.param) for slot in draft.slots.values()} == {
        "params/Dense_0/kernel",
        "params/Dense_0/bias",
    }


def test_a_twin_goes_without_its_param_only_if_twins_are_to_be_edited_as_named():
    tree = adam({"a": W, "b": B})
    said = failure(tree, Delete(at="opt_state/0/mu/a"))
    assert "'opt_state/0/mu/a' cannot go while its param 'params/a' stays" in said
    assert "'opt_state/0/mu' mirrors 'params' leaf by leaf" in said
    draft = resolved(tree, Delete(at="opt_state/0/mu/a", twins="named"))
    assert [str(path) for path in draft.removed] == ["opt_state/0/mu/a"]


def test_a_whole_field_goes_while_its_params_stay():
    draft = resolved(adam({"a": W, "b": B}), Delete(at="opt_state/0/mu"))
    assert [str(path) for path in draft.removed] == ["opt_state/0/mu/a", "opt_state/0/mu/b"]


def test_empty_leaves_go_with_their_subtree():
    assert printed(resolved({"a": {"x": None, "y": W}, "b": B}, Delete(at="a"))) == ["b"]


def test_a_dict_that_only_lost_its_leaves_stays_empty():
    draft = resolved({"params": DENSE, "step": COUNT}, Delete(at="params/Dense_1/*"))
    assert printed(draft)[2:] == ["params/Dense_1", "step"]
    assert empties(draft) == {"params/Dense_1": "Dict"}


def test_the_same_dicts_stay_empty_in_the_optimizer_state():
    draft = resolved(adam(DENSE), Delete(at="params/Dense_1/*"))
    assert empties(draft) == {
        "params/Dense_1": "Dict",
        "opt_state/0/mu/Dense_1": "Dict",
        "opt_state/0/nu/Dense_1": "Dict",
        "opt_state/1": "None",
    }


def test_a_list_that_only_lost_its_elements_stays_empty():
    draft = resolved({"layers": [{"w": W}, {"w": W}], "b": B}, Delete(at="layers/*"))
    assert empties(draft) == {"layers": "List"}
    assert printed(draft) == ["layers", "b"]


def test_an_empty_container_holds_its_index_in_a_list():
    draft = resolved({"layers": [{"w": W}, {"w": B}]}, Delete(at="layers/0/w"))
    assert origins(draft) == {("layers", 0): None, ("layers", 1, "w"): "layers/1/w"}


def test_only_the_innermost_container_stays():
    draft = resolved({"a": {"b": {"c": W}}, "d": B}, Delete(at="a/b/c"))
    assert empties(draft) == {"a/b": "Dict"}


def test_a_container_that_holds_an_empty_one_is_not_empty_itself():
    draft = resolved({"a": {"b": {"c": W}, "x": W}, "d": B}, Delete(at=("a/b/c", "a/x")))
    assert origins(draft) == {("a", "b"): None, ("d",): "d"}


def test_two_stars_name_the_node_above_too():
    assert printed(resolved({"a": {"b": {"c": W}}, "d": B}, Delete(at="a/**"))) == ["d"]


def test_a_regular_expression_names_leaves_only():
    draft = resolved({"a": {"b": W}, "d": B}, Delete(at="re:a/.*"))
    assert empties(draft) == {"a": "Dict"}


def test_what_an_exception_leaves_keeps_its_containers():
    edit = Delete(at="params", except_="params/Dense_0/bias")
    assert printed(resolved({"params": DENSE, "s": COUNT}, edit)) == ["params/Dense_0/bias", "s"]


def test_a_list_closes_its_gap_as_in_python():
    tree = {"layers": [{"w": W}, {"w": B}, {"w": COUNT}]}
    draft = resolved(tree, Delete(at="layers/0"))
    assert origins(draft) == {("layers", 0, "w"): "layers/1/w", ("layers", 1, "w"): "layers/2/w"}
    assert draft.notes == ("the list 'layers' closes its gap: the indices 1, 2 become 0 to 1",)


@given(st.integers(1, 8), st.data())
def test_what_is_left_of_a_list_is_what_python_leaves(size, data):
    gone = data.draw(st.sets(st.integers(0, size - 1), min_size=1))
    tree = {"layers": [{"w": W} for _ in range(size)], "b": B}
    draft = resolved(tree, Delete(at=tuple(f"layers/{index}" for index in gone)))
    python = [f"layers/{index}/w" for index in range(size)]
    for index in sorted(gone, reverse=True):
        del python[index]
    found = origins(draft)
    assert found.pop(("b",)) == "b"
    if python:
        assert found == {("layers", n, "w"): old for n, old in enumerate(python)}
    else:
        assert found == {("layers",): None}


def test_the_last_element_leaves_no_gap():
    draft = resolved({"layers": [W, B]}, Delete(at="layers/1"))
    assert origins(draft) == {("layers", 0): "layers/0"}
    assert draft.notes == ()


def test_lists_in_lists_close_their_gaps():
    tree = {"a": [[W, B], [W, B], [B, W]]}
    draft = resolved(tree, Delete(at=("a/0", "a/1/0")))
    assert origins(draft) == {
        ("a", 0, 0): "a/1/1",
        ("a", 1, 0): "a/2/0",
        ("a", 1, 1): "a/2/1",
    }


def test_twins_in_lists_move_up_with_their_params():
    tree = adam({"layers": [{"w": W}, {"w": B}]})
    draft = resolved(tree, Delete(at="params/layers/0"))
    found = origins(draft)
    for root in (("params",), ("opt_state", 0, "mu"), ("opt_state", 0, "nu")):
        assert found[(*root, "layers", 0, "w")] == "/".join(map(str, (*root, "layers", 1, "w")))
    assert {str(path): str(slot.param) for path, slot in draft.slots.items()} == {
        "opt_state/0/mu/layers/0/w": "params/layers/0/w",
        "opt_state/0/nu/layers/0/w": "params/layers/0/w",
    }


def test_positions_of_the_optimizer_state_are_never_renumbered():
    said = failure(adam({"a": W}), Delete(at="opt_state/0"))
    assert "the list 'opt_state' would keep only index 1" in said
    assert "never renumbered" in said


def test_positions_of_a_state_without_slots_are_not_renumbered_either():
    tree = {"params": {"a": W}, "opt_state": [None, {"count": COUNT}]}
    assert "never renumbered" in failure(tree, Delete(at="opt_state/0"))


def test_an_index_that_moved_up_is_named_by_its_new_number():
    tree = {"layers": [{"w": W}, {"w": B}, {"w": COUNT}]}
    draft = resolved(tree, Delete(at="layers/0"), Rename(at="layers/0", to="first"))
    assert origins(draft) == {("first", "w"): "layers/1/w", ("layers", 0, "w"): "layers/2/w"}


def test_nothing_left_is_refused():
    assert "nothing would be left" in failure({"a": W}, Delete(at="a"))


def test_a_pattern_without_match_deletes_nothing_if_that_is_allowed():
    draft = resolved({"a": W}, Delete(at="b", optional=True))
    assert draft.changed == []


@pytest.mark.parametrize(
    "at",
    [
        ("params", "opt_state"),
        ("params/a", "opt_state/0/mu/a"),
        ("params/a", "opt_state"),
        ("opt_state/0/nu/a/kernel", "params/a"),
    ],
)
def test_a_param_and_its_twins_may_be_named_side_by_side(at):
    tree = adam({"a": {"kernel": W, "bias": B}, "b": {"kernel": W}})
    tree["step"] = COUNT
    draft = resolved(tree, Delete(at=at))
    left = [str(path) for path in draft.leaves]
    assert not [path for path in left if "a" in path.split("/")]
    assert "step" in left


def test_a_param_and_its_twin_by_one_pattern_is_refused():
    said = failure(adam({"a": {"kernel": W, "bias": B}}), Delete(at="**/kernel"))
    assert "'params/a/kernel'" in said
    assert "'opt_state/0/mu/a/kernel'" in said
    assert "twins: named" in said


def test_a_param_and_its_twins_by_one_pattern_go_if_that_is_meant():
    tree = adam({"a": {"kernel": W, "bias": B}})
    draft = resolved(tree, Delete(at="**/kernel", twins="named"))
    assert len(draft.removed) == 3


MASKED = {
    "params": {"enc": {"a": {"kernel": W, "bias": B}}, "head": {"kernel": W}},
    "opt_state": [
        {
            "count": COUNT,
            "mu": {"enc": {"a": None}, "head": {"kernel": W}},
            "nu": {"enc": {"a": None}, "head": {"kernel": W}},
        }
    ],
}


def test_the_empty_leaf_that_stands_for_a_deleted_node_goes_too():
    draft = resolved(MASKED, Delete(at="params/enc"))
    assert printed(draft) == [
        "params/head/kernel",
        "opt_state/0/count",
        "opt_state/0/mu/head/kernel",
        "opt_state/0/nu/head/kernel",
    ]


def test_the_empty_leaf_stays_while_params_below_its_node_stay():
    draft = resolved(MASKED, Delete(at="params/enc/a/bias"))
    assert [str(path) for path in draft.removed] == ["params/enc/a/bias"]


def test_what_an_edit_left_empty_is_known_to_the_next():
    """As to a plan of its own on the result, where params and moments are empty alike."""
    draft = resolved(adam({"a": W}), Delete(at="params/*"), Delete(at="params"))
    assert printed(draft) == ["opt_state/0/count", "opt_state/1", "step"]


LAYERS = {"layers": [{"w": W, "b": B} for _ in range(4)], "out": W}


@pytest.mark.parametrize(
    ("at", "gone"), [((1,), {1}), ((3,), {3}), ((1, 2), {1, 3}), ((0, 0), {0, 1}), ((2, 1), {1, 2})]
)
def test_an_element_of_a_list_is_removed_whatever_moves_up_to_its_place(at, gone):
    """With its twins; ``gone`` are the elements of the source, of which one after the other goes."""
    draft = resolved(adam(LAYERS), *(Delete(at=f"params/layers/{index}") for index in at))
    trees = ("params", "opt_state/0/mu", "opt_state/0/nu")
    assert {str(path) for path in draft.removed} == {
        f"{tree}/layers/{index}/{key}" for tree in trees for index in gone for key in "wb"
    }
    assert [outcome.twins["deleted"] for outcome in draft.outcomes] == [4] * len(at)
