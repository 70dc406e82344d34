"""Copy: a second place for the same values."""

import pytest

from surgery_cli.errors import PlanError
from surgery_cli.operations.copy import Copy
from surgery_cli.operations.delete import Delete
from surgery_cli.operations.reset_optimizer import ResetOptimizer
from tests.hand_built_trees import COUNT, B, W, adam, moved, origins, printed, resolved


def test_the_source_stays_and_the_copy_comes_last():
    draft = resolved({"a": W, "b": B}, Copy(at="a", to="c"))
    assert origins(draft) == {("a",): "a", ("b",): "b", ("c",): "a"}
    assert printed(draft) == ["a", "b", "c"]
    assert draft.leaves[("c",)].is_by_reference


def test_twins_are_copied_along_and_follow_the_copy():
    draft = resolved(adam({"a": W}), Copy(at="params/a", to="params/b"))
    assert moved(draft) == {
        "params/b": "params/a",
        "opt_state/0/mu/b": "opt_state/0/mu/a",
        "opt_state/0/nu/b": "opt_state/0/nu/a",
    }
    assert {str(path): str(slot.param) for path, slot in draft.slots.items()} == {
        "opt_state/0/mu/a": "params/a",
        "opt_state/0/nu/a": "params/a",
        "opt_state/0/mu/b": "params/b",
        "opt_state/0/nu/b": "params/b",
    }


def test_a_deleted_copy_takes_its_own_twins_with_it():
    draft = resolved(adam({"a": W}), Copy(at="params/a", to="params/b"), Delete(at="params/b"))
    assert moved(draft) == {}
    assert draft.removed == []


def test_a_copied_subtree_keeps_its_typed_keys():
    draft = resolved({"a": [{"x/y": W}, None]}, Copy(at="a", to="b"))
    assert origins(draft)[("b", 0, "x/y")] == "a/0/x/y"
    assert ("b", 1) in draft.leaves


def test_an_element_is_appended_to_its_list():
    draft = resolved({"layers": [{"w": W}]}, Copy(at="layers/0", to="layers/1"))
    assert origins(draft)[("layers", 1, "w")] == "layers/0/w"


def test_captured_parts_stand_in_the_new_path():
    draft = resolved({"p": {"a": W, "b": B}}, Copy(at="p/*", to=r"ema/\1"))
    assert moved(draft) == {"ema/a": "p/a", "ema/b": "p/b"}


@pytest.mark.parametrize(
    ("tree", "edit", "said"),
    [
        ({"a": W, "b": B}, Copy(at="a", to="b"), "'b' and 'a' would both stand at 'b'"),
        ({"a": W}, Copy(at="a", to="a"), "would both stand at 'a'"),
        ({"a": W}, Copy(at="a", to="a/b"), "'a/b' cannot stand below 'a'"),
        ({"a": W, "b": {"c": B}}, Copy(at="a", to="b"), "'b/c' cannot stand below 'b'"),
        (
            {"l": [W], "a": COUNT},
            Copy(at="a", to="l/2"),
            "the list 'l' would have the indices 0, 2",
        ),
        ({"a": {"x": W}, "b": {"x": B}}, Copy(at="*/x", to="y"), "would both stand at 'y'"),
    ],
)
def test_what_cannot_be_stops(tree, edit, said):
    with pytest.raises(PlanError) as caught:
        resolved(tree, edit)
    assert said in str(caught.value)


def test_a_twin_is_not_copied_to_where_no_param_stands():
    said = "'opt_state/0/mu/b' would be new in 'opt_state/0/mu', and no param stands there"
    with pytest.raises(PlanError, match=said):
        resolved(adam({"a": W}), Copy(at="opt_state/0/mu/a", to="opt_state/0/mu/b"))
    draft = resolved(adam({"a": W}), Copy(at="opt_state/0/mu/a", to="backup/a"))
    assert "backup/a" in {str(path) for path in draft.leaves}


def test_a_copy_of_slots_outside_of_the_state_is_no_slot():
    draft = resolved(
        adam({"a": W}),
        Copy(at="opt_state/0/nu", to="saved"),
        ResetOptimizer(),
    )
    assert draft.leaves[("opt_state", 0, "nu", "a")].edits
    assert draft.leaves[("saved", "a")].is_by_reference
