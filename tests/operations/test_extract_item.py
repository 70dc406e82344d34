"""Extract-item and insert-item on hand-built trees: where leaves and slots stand, and what is refused."""

import msgspec
import pytest

from surgery_cli.draft.recipe import DraftItems
from surgery_cli.errors import PlanError
from surgery_cli.operations.copy import Copy
from surgery_cli.operations.delete import Delete
from surgery_cli.operations.extract_item import ExtractItem
from surgery_cli.operations.insert_item import InsertItem
from surgery_cli.operations.rename import Rename
from surgery_cli.operations.rescale import Rescale
from surgery_cli.operations.reset_optimizer import ResetOptimizer
from surgery_cli.tree.specs import LeafKind
from tests.hand_built_trees import COUNT, B, HandBuilt, W, adam, origins, printed, resolved

STATE = {**adam({"a": W, "b": B}), "batch_stats": {"mean": B}, "layers": [W, W]}
ONE = {"items": DraftItems(names=("default",), taken=frozenset({"default", "metrics"}))}
TWO = {"items": DraftItems(names=("default", "ema"), is_prefixed=True)}


def in_step(*edits, **plan):
    return resolved(STATE, *edits, settings=ONE, **plan)


def of_donor(structure):
    return lambda address: HandBuilt(structure, address)


def test_params_move_to_an_item_of_their_own_and_paths_begin_with_item_names():
    draft = in_step(ExtractItem(at="params", as_="weights"))
    assert origins(draft) == {
        ("weights", "a"): "params/a",
        ("weights", "b"): "params/b",
        ("default", "opt_state", 0, "count"): "opt_state/0/count",
        ("default", "opt_state", 0, "mu", "a"): "opt_state/0/mu/a",
        ("default", "opt_state", 0, "mu", "b"): "opt_state/0/mu/b",
        ("default", "opt_state", 0, "nu", "a"): "opt_state/0/nu/a",
        ("default", "opt_state", 0, "nu", "b"): "opt_state/0/nu/b",
        ("default", "opt_state", 1): "opt_state/1",
        ("default", "step"): "step",
        ("default", "batch_stats", "mean"): "batch_stats/mean",
        ("default", "layers", 0): "layers/0",
        ("default", "layers", 1): "layers/1",
    }
    assert draft.items.made == {"weights": "default"}
    assert [str(path) for path in draft.changed] == ["weights/a", "weights/b"]
    assert draft.removed == []


def test_twins_stay_and_belong_to_the_params_in_the_new_item():
    draft = in_step(ExtractItem(at="params"))
    assert {str(slot.path): str(slot.param) for slot in draft.slots.values()} == {
        "default/opt_state/0/mu/a": "params/a",
        "default/opt_state/0/mu/b": "params/b",
        "default/opt_state/0/nu/a": "params/a",
        "default/opt_state/0/nu/b": "params/b",
    }
    assert "4 twins stay in 'default'; their params stand in the item 'params' now" in draft.notes
    assert draft.outcomes[0].leaves == 2
    assert draft.outcomes[0].twins == {}


def test_a_later_edit_of_the_item_reaches_its_twins():
    draft = in_step(ExtractItem(at="params"), Rescale(at="params/a", by=0.5), optimizer_kind="adam")
    steps = {str(p): [e.name for e in r.edits] for p, r in draft.leaves.items() if r.edits}
    assert steps == {
        "params/a": ["rescale"],
        "default/opt_state/0/mu/a": ["rescale"],
        "default/opt_state/0/nu/a": ["rescale"],
    }


def test_keep_leaves_the_subtree_where_it_was():
    draft = in_step(ExtractItem(at="batch_stats", as_="stats", keep=True))
    found = origins(draft)
    assert (
        found[("stats", "mean")] == found[("default", "batch_stats", "mean")] == "batch_stats/mean"
    )
    assert [str(path) for path in draft.changed] == ["stats/mean"]


def test_one_tree_without_a_name_becomes_the_subtree_alone():
    draft = resolved(STATE, ExtractItem(at="params"))
    assert origins(draft) == {("a",): "params/a", ("b",): "params/b"}
    assert draft.slots == {}


def test_what_was_extracted_goes_back():
    draft = in_step(ExtractItem(at="params"), InsertItem(at="default/params", from_="params"))
    assert origins(draft) == {
        ("default", *path): str(path_) for path, path_ in _identity(STATE).items()
    }
    assert {str(slot.param) for slot in draft.slots.values()} == {
        "default/params/a",
        "default/params/b",
    }
    assert draft.changed == []


def _identity(structure):
    return {tuple(path): path for path in HandBuilt(structure).tree}


def test_an_item_of_several_is_inserted_at_a_free_place():
    tree = {"default": {"params": {"a": W}}, "ema": {"a": W}}
    draft = resolved(tree, InsertItem(at="default/ema_params", from_="ema"), settings=TWO)
    assert origins(draft) == {
        ("default", "params", "a"): "default/params/a",
        ("default", "ema_params", "a"): "ema/a",
    }


def test_a_donors_tree_takes_a_free_place():
    draft = resolved(
        {"params": {"a": W}},
        InsertItem(at="batch_stats", with_="donor", from_="stats"),
        open_source=of_donor({"stats": {"mean": B, "none": None}, "other": W}),
    )
    assert {str(p): (r.home.source, str(r.home.path)) for p, r in draft.leaves.items()} == {
        "params/a": ("", "params/a"),
        "batch_stats/mean": ("donor", "stats/mean"),
        "batch_stats/none": ("donor", "stats/none"),
    }
    assert draft.outcomes[0].leaves == 2


def test_a_donors_tree_replaces_one_of_the_same_structure_and_twins_follow_as_for_replace():
    draft = resolved(
        STATE,
        InsertItem(at="params", with_="donor", optimizer="reset"),
        open_source=of_donor({"a": W, "b": B}),
    )
    assert draft.leaves[("params", "a")].home.source == "donor"
    assert draft.outcomes[0].leaves == 2
    assert draft.outcomes[0].twins == {"reset": 4}


def test_another_checkpoints_tree_becomes_an_item_and_paths_begin_with_item_names():
    draft = resolved(
        {"params": {"a": W}},
        InsertItem(as_="ema", with_="donor", from_="weights"),
        settings=ONE,
        open_source=of_donor({"weights": {"a": W, "list": [B]}, "b": B}),
    )
    assert printed(draft) == ["default/params/a", "ema/a", "ema/list/0"]
    assert draft.items.made == {"ema": "default"}
    assert draft.outcomes[0].leaves == 2


def test_an_item_that_was_emptied_comes_back_under_its_name():
    draft = resolved(
        {"default": {"a": W}, "ema": {"a": W}},
        Delete(at="ema"),
        InsertItem(as_="ema", with_="donor"),
        settings=TWO,
        open_source=of_donor({"z": B}),
    )
    assert printed(draft) == ["default/a", "ema/z"]
    assert draft.items.made == {}


def test_only_a_step_has_items():
    with pytest.raises(PlanError, match="`as` is for steps with items"):
        resolved(
            {"params": {"a": W}},
            InsertItem(as_="ema", with_="donor"),
            open_source=of_donor({"b": B}),
        )


def test_an_empty_dict_is_filled():
    draft = resolved(
        {"params": {"a": W}, "batch_stats": {}},
        InsertItem(at="batch_stats", with_="donor"),
        open_source=of_donor({"mean": B}),
    )
    assert printed(draft) == ["params/a", "batch_stats/mean"]


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (ExtractItem(at="layers/0"), "'layers/0' is a leaf: float32[4,3]"),
        (ExtractItem(at="params/a"), "'params/a' is a leaf: float32[4,3]"),
        (ExtractItem(at=("params", "layers")), "the edit names 2 places"),
        (ExtractItem(at="params", except_="params/a"), "'params/a' would stay behind"),
        (ExtractItem(at="params", as_="metrics"), "the step holds 'metrics' already"),
        (ExtractItem(at="params", as_="default"), "the step holds 'default' already"),
        (ExtractItem(at="params", as_="a/b"), "'a/b' cannot be the name of an item"),
        (ExtractItem(at="params", as_="7"), "'7' cannot be the name of an item"),
        (
            ExtractItem(at="opt_state/0/mu"),
            "'opt_state/0/mu' is a part of the optimizer state",
        ),
        (ExtractItem(at="params", optimizer="reset"), "'extract-item' takes no `optimizer`"),
        (InsertItem(at="x", from_="params"), "'params' is no other item of this step"),
        (InsertItem(at="x"), "'insert-item' does not say what to insert"),
        (InsertItem(as_="ema"), "`as` makes an item of what comes from another checkpoint"),
        (
            InsertItem(at="x", as_="ema", with_="donor"),
            "'insert-item' has both `at` and `as`",
        ),
        (InsertItem(as_="metrics", with_="donor"), "the step holds 'metrics' already"),
        (InsertItem(as_="default", with_="donor"), "the step holds 'default' already"),
        (InsertItem(at="x/*", with_="donor"), "'insert-item' names one place"),
        (InsertItem(at="x", with_="donor", optional=True), "'insert-item' takes no `optional`"),
    ],
)
def test_refused(edit, said):
    with pytest.raises(PlanError) as caught:
        in_step(edit)
    assert caught.value.problems[0].what == said


def test_a_part_of_params_that_the_optimizer_mirrors_stays_unless_it_is_kept():
    tree = adam({"enc": {"w": W}, "head": {"w": W}})
    with pytest.raises(PlanError) as caught:
        resolved(tree, ExtractItem(at="params/head"), settings=ONE)
    (problem,) = caught.value.problems
    assert problem.what.startswith("'default/params/head/w' cannot become 'head/w'")
    assert "'default/opt_state/0/mu' mirrors 'default/params'" in problem.why
    assert "`keep: true`" in problem.fix
    kept = resolved(tree, ExtractItem(at="params/head", keep=True), settings=ONE)
    assert origins(kept)[("head", "w")] == "params/head/w"


def test_an_element_of_a_list_leaves_no_hole():
    with pytest.raises(PlanError, match="is an element of a list"):
        resolved(
            {"layers": [{"w": W}, {"w": W}]}, ExtractItem(at="layers/0", as_="x"), settings=ONE
        )


def test_a_tree_of_another_structure_does_not_take_the_place():
    with pytest.raises(PlanError) as caught:
        resolved(
            {"params": {"a": W, "b": B}},
            InsertItem(at="params", with_="donor"),
            open_source=of_donor({"a": COUNT, "c": B}),
        )
    assert [(p.what, p.why) for p in caught.value.problems] == [
        (
            "'params/a' does not agree",
            "there stands float32[4,3], and int32[] would come in its place",
        ),
        (
            "'params/b' does not agree",
            "there stands float32[3], and nothing would come in its place",
        ),
        (
            "'params/c' does not agree",
            "there stands nothing, and float32[3] would come in its place",
        ),
    ]


def test_new_leaves_among_params_with_twins_are_refused():
    with pytest.raises(PlanError) as caught:
        resolved(
            STATE,
            InsertItem(at="params/head", with_="donor"),
            open_source=of_donor({"w": W}),
        )
    assert caught.value.problems[0].what == "'params/head' would be new in 'params'"


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ("params/a/x", "'params/a/x' cannot stand below 'params/a'"),
        ("layers/3", "the list 'layers' would have the indices 0, 1, 3"),
    ],
)
def test_a_place_that_cannot_be(at, said):
    with pytest.raises(PlanError) as caught:
        resolved(
            {"params": {"a": W}, "layers": [W, W]},
            InsertItem(at=at, with_="donor"),
            open_source=of_donor({"w": W}),
        )
    assert caught.value.problems[0].what == said


def test_a_state_with_a_name_of_its_own_that_holds_no_slot_is_not_torn_either():
    tree = {"params": {"a": W}, "critic_opt_state": {"inner": {"seen": COUNT}}}

    with pytest.raises(PlanError) as caught:
        resolved(tree, ExtractItem(at="critic_opt_state/inner"), settings=ONE)
    assert caught.value.problems[0].what == (
        "'critic_opt_state/inner' is a part of the optimizer state"
    )


def test_an_element_of_a_list_is_taken_out_of_one_tree():
    draft = resolved(STATE | {"layers": [W, {"w": W}]}, ExtractItem(at="layers/1"))
    assert origins(draft) == {("w",): "layers/1/w"}


def test_arrays_of_numpy_stand_in_for_those_of_jax():
    as_numpy = msgspec.structs.replace(B, kind=LeafKind.NUMPY)
    draft = resolved(
        STATE,
        InsertItem(at="batch_stats", with_="d"),
        open_source=of_donor({"mean": as_numpy}),
    )
    assert draft.leaves[("batch_stats", "mean")].home.source == "d"
    assert draft.leaves[("batch_stats", "mean")].spec.kind is LeafKind.ARRAY


def test_a_format_with_one_kind_of_array_gets_that_kind():
    as_numpy = msgspec.structs.replace(B, kind=LeafKind.NUMPY)
    draft = resolved(
        STATE,
        InsertItem(at="more", with_="d"),
        open_source=of_donor({"mean": as_numpy}),
        settings={"items": DraftItems(keeps_kinds=False)},
    )
    assert draft.leaves[("more", "mean")].spec.kind is LeafKind.ARRAY


PARAMS = {"params": {"a": W, "b": B}}
PUT_IN = InsertItem(at="opt_state", with_="d", from_="opt_state")


def test_optimizer_state_that_a_plan_puts_in_follows_as_it_would_in_a_plan_of_its_own():
    scale = Rescale(at="params/a", by=2, optimizer="reset")
    draft = resolved(PARAMS, PUT_IN, scale, open_source=of_donor(STATE))
    assert not draft.leaves[("opt_state", 0, "nu", "a")].is_by_reference
    assert draft.leaves[("opt_state", 0, "nu", "b")].is_by_reference


def test_optimizer_state_that_a_plan_puts_in_is_reset_with_its_counters():
    draft = resolved(PARAMS, PUT_IN, ResetOptimizer(clocks=True), open_source=of_donor(STATE))
    assert {str(path) for path, out in draft.leaves.items() if not out.is_by_reference} == {
        "opt_state/0/count",
        *(f"opt_state/0/{field}/{param}" for field in ("mu", "nu") for param in ("a", "b")),
    }


def test_a_copy_of_params_is_one_for_later_edits_of_places():
    draft = resolved(
        PARAMS,
        Copy(at="params", to="ema"),
        Rename(at="params/a", to="params/c"),
        Delete(at="params/b"),
    )
    assert printed(draft) == ["params/c", "ema/c"]


def test_a_copy_of_a_whole_optimizer_state_follows_as_the_state_does():
    draft = resolved(
        STATE, Copy(at="opt_state", to="saved"), Rescale(at="params/a", by=2), optimizer_kind="adam"
    )
    assert draft.leaves[("saved", 0, "nu", "a")].edits
