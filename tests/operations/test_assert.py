"""Assert: what metadata tell of a rule, before anything is read."""

import pytest

from surgery_cli.errors import PlanError
from surgery_cli.operations.table import operations
from surgery_cli.planning import fields_of, operation_from_options, plan_from_document
from surgery_cli.rules.bounds import Bounds
from surgery_cli.rules.table import RULES
from tests.hand_built_trees import B, W, adam, array, printed, resolved

LAYERS = {f"layers_{n}": {"w": W, "b": B} for n in range(12)}
Assert = operations()["assert"]


def edit(**fields):
    (found,) = plan_from_document({"edits": [{"op": "assert", **fields}]}).edits
    return found


def refused(structure, **fields):
    with pytest.raises(PlanError) as caught:
        resolved(structure, edit(**fields))
    return "\n".join(f"{p.path}: {p.what} / {p.why} / {p.fix}" for p in caught.value.problems)


@pytest.mark.parametrize("rule", RULES)
def test_every_field_of_a_rule_is_described_and_one_of_the_operation(rule):
    known = {field.name: field for field in fields_of(Assert)}
    for field in fields_of(rule):
        assert field.description
        assert known[field.name].description == field.description
        assert known[field.name].default is None


@pytest.mark.parametrize(
    "fields",
    [
        {"at": "layers_*", "exists": True},
        {"at": "heads", "exists": False},
        {"at": "layers_{0..11}", "count": 24},
        {"at": "layers_{0..11}", "count": "12 nodes"},
        {"at": "layers_{0..11}", "count": "10..14 nodes"},
        {"at": "layers_{0..11}", "count": "..24"},
        {"at": "heads", "count": 0},
        {"at": "heads", "count": "..3"},
        {"at": "layers_*/w", "shape": [4, 3]},
        {"at": "layers_*/w", "shape": [-1, 3]},
        {"at": "**", "dtype": "floating"},
        {"at": "**", "dtype": "float32"},
        {"dtype": "float*"},
        {"at": "layers_*", "alike": True},
        {"at": "layers_*/w", "alike": True},
        {"at": ["layers_*/w", "layers_*/b"], "alike": True},
        {"at": "layers_3*", "alike": True},  # a pattern may match one node: a model of one layer
        {"at": ["layers_0", "layers_*"], "alike": True, "consecutive": True},
        {"at": "layers_{3..3}", "alike": True, "consecutive": True},
        {"at": "layers_*", "consecutive": True},
        {"at": "layers_{0..11}/w", "consecutive": True},
        {"at": ["layers_0", "layers_{2..4}"], "consecutive": True},
        {"unchanged": True},
        {"at": "layers_1/w", "shape": ["4..4", "..3"]},
        {"at": "layers_1/w", "shape": ["0..9", "3.."]},
        {"at": "layers_*", "optional": True, "count": "24", "dtype": "float32", "shape": [4]},
    ],
)
def test_what_metadata_tell_holds_without_a_look_at_values(fields):
    structure = LAYERS if fields.get("shape") != [4] else {"layers_1": {"w": array(4)}}
    if fields.get("shape") == [4]:
        fields = {**fields, "count": 1}
    draft = resolved(structure, edit(**fields))
    assert draft.changed == []
    assert all(not check.on for check in draft.checks)
    assert len(draft.checks) >= 1


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"at": "heads", "exists": True}, "'heads' matches nothing"),
        ({"at": "layers_*/w", "exists": False}, "there must be none, and there stand 'layers_0/w'"),
        ({"at": "layers_*", "count": 23}, "`count 23` does not hold / there must be 23, and there are 24 leaves"),
        ({"at": "layers_*", "count": "1..11 nodes"}, "there must be 1..11, and there are 12 nodes"),
        ({"at": "layers_1/w", "shape": [4]}, "layers_1/w: 'layers_1/w' breaks `shape [4]` / it is float32[4,3]"),
        ({"at": "layers_1/b", "dtype": "bfloat16"}, "'layers_1/b' breaks `dtype bfloat16` / it is float32[3]"),
        ({"at": "layers_1/b", "equal_to": "layers_1/w"}, "it is float32[3], the other float32[4,3]"),
        ({"at": "layers_1/w", "equal_to": "layers_1/w"}, "each leaf would be compared with itself"),
        ({"at": "layers_*/w", "equal_to": r"layers_\1/w"}, "each leaf would be compared with itself"),
        ({"at": "layers_1/b", "equal_to": "layers_1/c"}, "there is no leaf 'layers_1/c'"),
        ({"at": "layers_1/b"}, "`assert` states no rule"),
        ({"at": "layers_*/*", "alike": True}, "'layers_0/b' is float32[3] (float32[4,3] in most)"),
        ({"at": "layers_{0..13}", "consecutive": True}, "'layers_{12,13}' are not there"),
        ({"at": "layers_*", "except": "layers_{3,5}", "consecutive": True}, "'layers_{3,5}' are not there"),
        ({"at": "layers_*", "except": "layers_7", "consecutive": True}, "'layers_7' is not there"),
        ({"at": "*", "consecutive": True}, "'*' matches no numbers"),
        ({"at": "layers_1/b", "alike": False}, "`alike: false` states no rule"),
        ({"at": "layers_1/b", "finite": False}, "`finite: false` states no rule"),
        ({"at": "layers_1/b", "allow": "inf"}, "`allow` belongs to `finite`"),
        ({"at": "layers_1/b", "norm": "many"}, "`norm` takes bounds, not 'many'"),
        ({"at": "layers_1/b", "norm": ".."}, "`norm` takes bounds, not '..'"),
        ({"at": "layers_1/b", "norm": "1...5x"}, "takes bounds"),
        ({"at": "layers_1/b", "norm": "5..1"}, "no number lies within `norm: 5..1`"),
        ({"at": "layers_1/b", "zeros": "..100"}, "`zeros` is a share from 0 to 1, not ..100"),
        ({"at": "layers_1/w", "shape": ["5..", 3]}, "'layers_1/w' breaks `shape [5..,3]`"),
        ({"at": "layers_1/w", "shape": [-1, "..2"]}, "'layers_1/w' breaks `shape [-1,..2]`"),
        ({"at": "layers_1/w", "shape": ["1..9"]}, "'layers_1/w' breaks `shape [1..9]`"),
        ({"at": "layers_1/w", "shape": ["9..1", 3]}, "no number lies within `shape: 9..1`"),
        ({"at": "layers_1/w", "shape": ["..", 3]}, "takes lengths and bounds of them, not '..'"),
        ({"at": "layers_1/w", "shape": ["4", 3]}, "takes lengths and bounds of them, not '4'"),
        ({"at": "layers_1/b", "count": "some"}, "`count` takes a number, not 'some'"),
        ({"at": "layers_1/b", "finite": True, "optimizer": "keep"}, "takes no `optimizer`"),
    ],
)  # fmt: skip
def test_what_metadata_show_to_be_wrong_is_refused_with_leaf_rule_and_what_was_found(fields, said):
    assert said in refused(LAYERS, **fields)


@pytest.mark.parametrize("rule", ["alike", "consecutive"])
@pytest.mark.parametrize(
    ("at", "fix"),
    [
        ("layers_3", "write 'layers_*'"),
        (["layers_0/w", "layers_1/w"], "write 'layers_*/w'"),
        ("nested/layers", "name the nodes by a pattern: `params/layers_*`, `params/layers_{0..11}`"),
        ("[*]", "name the nodes by a pattern: `params/layers_*`, `params/layers_{0..11}`"),
        (None, "name the nodes by a pattern: `params/layers_*`, `params/layers_{0..11}`"),
    ],
)  # fmt: skip
def test_a_rule_about_several_nodes_refuses_patterns_that_name_one_each(rule, at, fix):
    named = {} if at is None else {"at": at}
    structure = {**LAYERS, "nested": {"layers": {"w": W}}, "*": W}
    said = refused(structure, **named, **{rule: True})
    assert f"`{rule}` has nothing to look through" in said
    assert said.endswith(fix)


def test_everything_that_is_wrong_comes_at_once():
    text = refused(LAYERS, at="layers_{0..1}", count=3, dtype="int32", shape=[4, 3])
    assert text.count("breaks `dtype int32`") == 4
    assert text.count("breaks `shape [4,3]`") == 2
    assert text.count("`count 3` does not hold") == 1


def test_what_a_layer_lacks_or_has_otherwise_is_named():
    odd = {
        **LAYERS,
        "layers_2": {"w": W},
        "layers_3": {"w": array(3, 4), "b": B},
        "layers_4": {"w": W, "b": array(3, dtype="bfloat16")},
    }
    assert refused(odd, at="layers_*", alike=True) == (
        "None: `alike` does not hold / 'layers_3/w' is float32[3,4] (float32[4,3] in most), 'layers_2' lacks 'b' (11"
        " others have it), 'layers_4/b' is bfloat16[3] (float32[3] in most) / "
    )


def test_numbers_within_numbers_have_a_series_each():
    experts = {
        f"layers_{n}": {f"expert_{m}": {"w": W} for m in range(4)} | {"w": W} for n in (1, 2, 3)
    }
    named = {"at": "layers_*/expert_*", "consecutive": True}
    assert resolved(experts, edit(**named)).changed == []
    del experts["layers_2"]["expert_1"], experts["layers_3"]["expert_0"]
    assert "/ 'layers_2/expert_1' is not there /" in refused(experts, **named)
    experts["layers_1000000000000"] = {"expert_0": {"w": W}}
    assert "'layers_{4..1003}/expert_0' are not there, 'layers_2/expert_1' is" in refused(
        experts, **named
    )
    experts = {"layers_0": {"w": W}, "layers_x": {"w": W}}
    assert "'layers_*' matches 'x' beside numbers" in refused(
        experts, at="layers_*", consecutive=True
    )


def test_an_assert_judges_the_tree_as_it_stands_between_two_edits():
    rename = {"op": "rename", "at": "a", "to": "b"}
    there = [{"op": "assert", "at": "a", "count": 1}, {"op": "assert", "at": "b", "count": 0}]
    after = [{"op": "assert", "at": "a", "count": 0}, {"op": "assert", "at": "b", "count": 1}]
    plan = plan_from_document({"edits": [*there, rename, *after]})
    assert printed(resolved({"a": W}, *plan.edits)) == ["b"]
    plan = plan_from_document({"edits": [*after, rename]})
    with pytest.raises(PlanError):
        resolved({"a": W}, *plan.edits)


def test_params_and_twins_may_be_named_together_and_nothing_is_asked_of_the_optimizer():
    draft = resolved(adam({"a": W}), edit(at="**", finite=True))
    (check,) = draft.checks
    assert [str(leaf.path) for leaf in check.on] == [
        "params/a",
        "opt_state/0/mu/a",
        "opt_state/0/nu/a",
    ]
    assert draft.outcomes[0].twins == {}


def test_an_assert_leaves_the_digest_of_the_draft_as_it_is():
    plain = resolved({"a": W})
    assert resolved({"a": W}, edit(at="a", finite=True, norm="..1")).digest == plain.digest


def test_without_patterns_only_floats_are_measured():
    structure = {"w": W, "step": array(dtype="int32"), "none": None}
    (check,) = resolved(structure, edit(norm="..1")).checks
    assert [str(leaf.path) for leaf in check.on] == ["w"]
    (check,) = resolved(structure, edit(at="step", norm="..1")).checks
    assert [str(leaf.path) for leaf in check.on] == ["step"]


@pytest.mark.parametrize(
    ("given", "inside", "outside"),
    [
        ("0.1..100", [0.1, 100, 5], [0.0999, 100.1, float("nan")]),
        ("..1e-3", [-5, 1e-3], [2e-3, float("inf")]),
        ("-1 .. -.5", [-1, -0.5], [0, -2]),
        ("1e3..", [1e3, float("inf")], [999]),
        ("1...5", [], []),
        (0, [0], [1e-30]),
    ],
)
def test_bounds_hold_their_ends(given, inside, outside):
    if given == "1...5":  # from 1 to .5
        with pytest.raises(PlanError, match="no number lies within"):
            Bounds.of(given, "norm")
        return
    bounds = Bounds.of(given, "norm")
    assert all(number in bounds for number in inside)
    assert not any(number in bounds for number in outside)
    assert Bounds.of(str(bounds) if ".." in str(bounds) else float(str(bounds)), "norm") == bounds


def test_options_give_the_fields_of_a_plan():
    words = {
        "at": ["params"],
        "finite": True,
        "norm": "..100",
        "shape": ["64,-1,..9"],
        "count": "3",
    }
    assert operation_from_options("assert", words) == edit(
        at="params", finite=True, norm="..100", shape=[64, -1, "..9"], count=3
    )
