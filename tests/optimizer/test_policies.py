"""Twins follow their params: by steps in the draft, seen from metadata alone."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from surgery_cli.draft.expression import LeafRef
from surgery_cli.draft.kernels.fill import Fill, Mean, Spread
from surgery_cli.draft.kernels.scale import FollowFactor, Scale
from surgery_cli.draft.recipe import SOURCE, Draft
from surgery_cli.errors import PlanError
from surgery_cli.operations.cast import Cast
from surgery_cli.operations.normalize import Normalize
from surgery_cli.operations.reinit import Reinit
from surgery_cli.operations.rekey import rekey
from surgery_cli.operations.replace import Replace
from surgery_cli.operations.rescale import Rescale
from surgery_cli.optimizer.detect.survey import survey
from surgery_cli.optimizer.follow import policies
from surgery_cli.optimizer.follow.mirroring import double_named
from surgery_cli.optimizer.follow.moved_slots import slots_after, twins_along
from surgery_cli.resolution.selection import select
from surgery_cli.tree.paths import LeafPath, PathPattern, Selection
from surgery_cli.tree.specs import TreeSpec
from tests.operations.value_edits import (
    kernels,
    rewritten,
)
from tests.optimizer.optax_registry import PARAMS, state_of, train_state, tree_of

KERNEL = "params/Dense_0/kernel"


class Donor:
    """A source that is only a tree."""

    fingerprint = "donor"
    places = frozenset({"/donor"})

    def __init__(self, tree: TreeSpec) -> None:
        self.tree = tree


class Room:
    """A scene with one donor."""

    seed = 3
    source = SimpleNamespace(places=frozenset({"/source"}))

    def __init__(self, donor: TreeSpec | None = None) -> None:
        self.donor = donor

    def select(self, edit: Any, draft: Draft) -> Selection:
        return select(edit, draft)

    def open(self, text: str) -> tuple[str, Donor]:
        assert self.donor is not None
        return text, Donor(self.donor)

    def survey_of(self, name: str, *, tell: bool = False) -> Any:
        assert self.donor is not None
        return survey(self.donor, kind="adam" if tell else None)

    def number(self, ref: LeafRef) -> float:
        return 7.0

    def policy(self, edit: Any) -> str | None:
        return edit.optimizer

    def carried(self, draft: Draft, edit: Any, edited: Any, before: Draft) -> Draft:
        return policies.carry_values(draft, edit, edited, before, self.policy(edit), self)


def draft_of(name: str, kind: str | None = None, **more: Any) -> Draft:
    tree = tree_of({"params": PARAMS, "opt_state": state_of(name), **more})
    return Draft.of(tree, "print", survey(tree, kind=kind).slots)


def edited(draft: Draft, edit: Any, donor: TreeSpec | None = None) -> Draft:
    return rewritten(edit, draft, Room(donor))


def operations(draft: Draft, text: str) -> list[Any]:
    (recipe,) = (r for p, r in draft.leaves.items() if str(p) == text)
    return kernels(recipe.recipe)


def policy(draft: Draft, text: str) -> str:
    return next(r.policy for p, r in draft.leaves.items() if str(p) == text)


def test_a_factor_reaches_the_moments_by_their_powers() -> None:
    after = edited(draft_of("adam", "adam"), Rescale(at=KERNEL, by=0.1))
    assert operations(after, "opt_state/0/mu/Dense_0/kernel") == [Scale(10.0)]
    (square,) = operations(after, "opt_state/0/nu/Dense_0/kernel")
    assert square.by == pytest.approx(100.0, rel=1e-12)
    assert operations(after, "opt_state/0/mu/Dense_1/kernel") == []
    assert policy(after, "opt_state/0/nu/Dense_0/kernel") == "transform"
    assert after.notes == ()


def test_a_negative_factor_turns_first_moments_only() -> None:
    after = edited(draft_of("adam", "adam"), Rescale(at=KERNEL, by=-2.0))
    assert operations(after, "opt_state/0/mu/Dense_0/kernel") == [Scale(-0.5)]
    assert operations(after, "opt_state/0/nu/Dense_0/kernel") == [Scale(0.25)]


def test_unsure_slots_are_kept_by_default_and_the_preview_says_what_settles_them() -> None:
    after = edited(draft_of("adam"), Rescale(at=KERNEL, by=0.1))
    assert operations(after, "opt_state/0/mu/Dense_0/kernel") == []
    assert policy(after, "opt_state/0/nu/Dense_0/kernel") == "keep"
    (note,) = after.notes
    assert "2 slots of 'opt_state/0' (mu, nu) are kept as they were" in note
    assert "`--optimizer-kind NAME`" in note
    assert "up to 5.2 times as large as usual (step 17" in note


def test_an_explicit_transform_of_unsure_slots_is_refused_with_the_line_that_settles_it() -> None:
    with pytest.raises(PlanError, match="is not known") as caught:
        edited(draft_of("adam"), Rescale(at=KERNEL, by=0.1, optimizer="transform"))
    assert all("optimizer_kind" in problem.fix for problem in caught.value.problems)
    assert {p.path for p in caught.value.problems} == {
        "opt_state/0/mu/Dense_0/kernel",
        "opt_state/0/nu/Dense_0/kernel",
    }


def test_keep_leaves_every_slot_as_it_is() -> None:
    after = edited(draft_of("adam", "adam"), Rescale(at="params", by=0.1, optimizer="keep"))
    assert [str(p) for p in after.changed if p[0] == "opt_state"] == []


def test_a_factor_of_zero_resets_by_default_and_cannot_be_followed() -> None:
    after = edited(draft_of("adam", "adam"), Rescale(at=KERNEL, by=0.0))
    assert operations(after, "opt_state/0/nu/Dense_0/kernel") == [Fill(0.0)]
    for refused in ("transform", "warm"):
        with pytest.raises(PlanError, match="factor of 0"):
            edited(draft_of("adam", "adam"), Rescale(at=KERNEL, by=0.0, optimizer=refused))
    kept = edited(draft_of("adam", "adam"), Rescale(at=KERNEL, by=0.0, optimizer="keep"))
    assert operations(kept, "opt_state/0/nu/Dense_0/kernel") == []


def test_a_normalized_param_scales_its_twins_by_its_own_measured_norm() -> None:
    draft = draft_of("adam", "adam")
    after = edited(draft, Normalize(at=KERNEL))
    path = next(p for p in after.leaves if str(p) == "opt_state/0/nu/Dense_0/kernel")
    param, (own, factor) = draft.slots[path].param, after.leaves[path].recipe.inputs
    assert after.leaves[path].recipe.kernel == FollowFactor(-2, is_even=True)
    assert own is draft.leaves[path].recipe
    assert factor is after.leaves[param].recipe.inputs[1]
    assert factor.inputs == (draft.leaves[param].recipe,)


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        (
            "adam",
            {
                "opt_state/0/mu/Dense_0/kernel": [Fill(0.0)],
                "opt_state/0/nu/Dense_0/kernel": [Mean(), Spread()],
            },
        ),
        ("adagrad", {"opt_state/0/sum_of_squares/Dense_0/kernel": [Mean(), Spread()]}),
        ("sgd_momentum", {"opt_state/0/trace/Dense_0/kernel": [Fill(0.0)]}),
        (
            "novograd",
            {
                "opt_state/0/mu/Dense_0/kernel": [Fill(0.0)],
                "opt_state/0/nu/Dense_0/kernel": [],
            },
        ),
        (
            "adafactor",
            {
                "opt_state/0/v_row/Dense_0/kernel": [Mean(), Spread()],
                "opt_state/0/v_col/Dense_0/kernel": [Mean(), Spread()],
                "opt_state/0/v/Dense_0/kernel": [],
            },
        ),
    ],
)
def test_new_values_warm_the_second_moments_and_zero_the_first(
    name: str, steps: Mapping[str, Any]
) -> None:
    after = edited(draft_of(name), Reinit(at=KERNEL, init="lecun_normal"))
    assert {path: operations(after, path) for path in steps} == steps


@pytest.mark.parametrize(("name", "value"), [("adagrad", 0.1), ("rmsprop", 0.0)])
def test_reset_gives_the_optimizers_own_initial_value(name: str, value: float) -> None:
    after = edited(draft_of(name, name), Rescale(at=KERNEL, by=2.0, optimizer="reset"))
    field = {"adagrad": "sum_of_squares", "rmsprop": "nu"}[name]
    assert operations(after, f"opt_state/0/{field}/Dense_0/kernel") == [Fill(value)]


@pytest.mark.parametrize("name", ["rprop", "adagrad", "rmsprop", "rmsprop_centered"])
def test_reset_without_a_known_initial_value_is_refused_and_offers_the_line_to_add(
    name: str,
) -> None:
    with pytest.raises(PlanError, match="initial value") as caught:
        edited(draft_of(name), Rescale(at=KERNEL, by=2.0, optimizer="reset"))
    assert "{fresh: X}" in str(caught.value)


@pytest.mark.parametrize("chosen", [None, "keep", "transform", "reset", "warm"])
def test_copies_of_params_in_the_optimizer_follow_every_factor(chosen: str | None) -> None:
    draft = draft_of("schedule_free_sgd")
    after = edited(draft, Rescale(at=KERNEL, by=0.5, optimizer=chosen))
    own = operations(after, "opt_state/z/Dense_0/kernel")
    assert [step.by for step in own] == [0.5]


@pytest.mark.parametrize("chosen", [None, "keep", "reset", "warm"])
def test_copies_of_params_take_the_very_values_of_a_new_param(chosen: str | None) -> None:
    after = edited(
        draft_of("schedule_free_sgd"), Reinit(at=KERNEL, init="lecun_normal", optimizer=chosen)
    )
    z = after.leaves[LeafPath(("opt_state", "z", "Dense_0", "kernel"))]
    param = after.leaves[LeafPath(("params", "Dense_0", "kernel"))]
    assert z.home == param.home
    assert z.recipe is param.recipe


def test_a_replaced_param_brings_the_donors_slots() -> None:
    donor = train_state("adam")
    after = edited(draft_of("adam", "adam"), Replace(at="params/Dense_0", with_="other"), donor)
    for field in ("mu", "nu"):
        path = LeafPath(("opt_state", 0, field, "Dense_0", "kernel"))
        assert after.leaves[path].home == LeafRef("other", path)
        assert after.leaves[path].edits == ()
    assert any("'other'" in note for note in after.notes)


def test_a_donor_without_optimizer_state_warms_the_slots() -> None:
    after = edited(
        draft_of("adam"), Replace(at="params/Dense_0", with_="other"), tree_of({"params": PARAMS})
    )
    path = LeafPath(("opt_state", 0, "nu", "Dense_0", "kernel"))
    assert after.leaves[path].home == LeafRef(SOURCE, path)
    assert operations(after, str(path)) == [Mean(), Spread()]


def test_copies_beside_the_optimizer_state_are_left_alone_and_named() -> None:
    draft = draft_of("adam", "adam", ema_params=PARAMS)
    after = edited(draft, Rescale(at=KERNEL, by=0.5))
    assert operations(after, "ema_params/Dense_0/kernel") == []
    assert any("'ema_params'" in note for note in after.notes)


@pytest.mark.parametrize("at", [("params/Dense_0",), ("params/Dense_0", "ema_params/Dense_0")])
def test_copies_would_draw_other_values_and_the_way_to_equal_ones_is_said(at: tuple[str]) -> None:
    draft = draft_of("adam", "adam", ema_params=PARAMS)
    (note,) = [n for n in edited(draft, Reinit(at=at, init="normal")).notes if "ema_params" in n]
    assert "draw other values" in note or "draw different values" in note
    assert "`delete` 'ema_params/Dense_0/bias' and `copy` 'params/Dense_0/bias' to it" in note
    assert not any("draw" in n for n in edited(draft, Reinit(at=at, init="zeros")).notes)
    assert not any("draw" in n for n in edited(draft, Rescale(at=at, by=2)).notes)


def test_a_cast_keeps_slots_and_copies() -> None:
    after = edited(draft_of("schedule_free_sgd"), Cast(at="params", to="bfloat16"))
    assert [p for p in after.changed if p[0] == "opt_state"] == []


def test_named_twins_are_edited_as_named_and_not_twice() -> None:
    edit = Rescale(at=("**/Dense_0/kernel",), by=0.5, twins="named")
    after = edited(draft_of("adam", "adam"), edit)
    (only,) = operations(after, "opt_state/0/mu/Dense_0/kernel")
    assert only.by == 0.5


@pytest.mark.parametrize(
    "edit",
    [
        Rescale(at="opt_state/0/nu", by=-1.0),
        Replace(at="opt_state/0/nu", with_=-1.0),
        Reinit(at="opt_state/0/nu", init="normal"),
    ],
)
def test_no_edit_makes_squares_negative(edit: Any) -> None:
    with pytest.raises(PlanError, match="negative"):
        edited(draft_of("adam", "adam"), edit)


def test_a_pattern_that_names_a_param_and_its_twin_is_found_out() -> None:
    draft = draft_of("adam")
    selected = [p for p in draft.leaves if PathPattern("**/kernel").match(p)]
    double = double_named(draft, selected)
    assert {str(slot.path) for slot in double} == {
        f"opt_state/0/{field}/Dense_{i}/kernel" for field in ("mu", "nu") for i in (0, 1)
    }
    params_only = [p for p in selected if p[0] == "params"]
    assert double_named(draft, params_only) == []


def moves(draft: Draft, old: str, new: str) -> dict[LeafPath, tuple[LeafPath, ...]]:
    before, after = LeafPath(old.split("/")), LeafPath(new.split("/"))
    return {p: (after / p[len(before) :],) for p in draft.leaves if p.is_below(before)}


def places(found: Mapping[LeafPath, tuple[LeafPath, ...]]) -> dict[str, str]:
    return {str(old): " ".join(map(str, news)) for old, news in found.items()}


def test_twins_move_with_their_params_in_every_state() -> None:
    draft = draft_of("amsgrad")
    found = twins_along(draft, moves(draft, "params/Dense_0", "params/stem/Dense_0"))
    assert places(found) == {
        f"opt_state/0/{f}/Dense_0/{leaf}": f"opt_state/0/{f}/stem/Dense_0/{leaf}"
        for f in ("mu", "nu", "nu_max")
        for leaf in ("kernel", "bias")
    }


def test_lists_of_axis_vectors_move_as_a_whole() -> None:
    draft = draft_of("sm3")
    assert places(twins_along(draft, moves(draft, KERNEL, "params/Dense_0/weight"))) == {
        "opt_state/0/mu/Dense_0/kernel/0": "opt_state/0/mu/Dense_0/weight/0",
        "opt_state/0/mu/Dense_0/kernel/1": "opt_state/0/mu/Dense_0/weight/1",
        "opt_state/0/nu/Dense_0/kernel": "opt_state/0/nu/Dense_0/weight",
    }


def test_holes_of_other_partitions_move_along() -> None:
    draft = draft_of("muon")
    found = twins_along(draft, moves(draft, KERNEL, "params/Dense_0/weight"))
    assert places(found).keys() == {
        f"opt_state/inner_states/{part}/Dense_0/kernel"
        for part in ("adam/inner_state/0/mu", "adam/inner_state/0/nu", "muon/inner_state/0/mu")
    }


def test_a_subtree_that_is_one_hole_moves_as_a_whole_and_is_not_taken_apart() -> None:
    tree = tree_of(
        {
            "params": PARAMS,
            "opt_state": [{"trace": {"Dense_0": None, "Dense_1": PARAMS["Dense_1"]}}],
        }
    )
    draft = Draft.of(tree, "print", survey(tree).slots)
    found = twins_along(draft, moves(draft, "params/Dense_0", "params/stem"))
    assert places(found) == {"opt_state/0/trace/Dense_0": "opt_state/0/trace/stem"}
    inside = moves(draft, KERNEL, "params/Dense_0/weight")
    assert twins_along(draft, inside) == {}
    for place in ("params/Dense_0/copy", "params/Dense_0/deep/copy"):
        for part in ("params/Dense_0", KERNEL):
            copies = moves(draft, part, place)
            copied = rekey(draft, {old: (old, *news) for old, news in copies.items()})
            assert copied.slots == draft.slots
    with pytest.raises(PlanError, match="taken apart"):
        twins_along(draft, moves(draft, KERNEL, "params/elsewhere"))
    gone = dict.fromkeys(moves(draft, "params/Dense_0", "x"), ())
    assert places(twins_along(draft, gone)) == {"opt_state/0/trace/Dense_0": ""}


def test_twins_stay_when_the_whole_root_moves_and_a_part_of_it_may_not_leave() -> None:
    draft = draft_of("adam")
    whole = moves(draft, "params", "model")
    assert twins_along(draft, whole) == {}
    mu = slots_after(draft, whole)[LeafPath(("opt_state", 0, "mu", "Dense_0", "kernel"))]
    assert (str(mu.param), str(mu.root)) == ("model/Dense_0/kernel", "model")
    with pytest.raises(PlanError, match="has no place there"):
        twins_along(draft, moves(draft, KERNEL, "frozen/kernel"))


def test_a_copy_outside_the_root_has_no_twins() -> None:
    draft = draft_of("adam")
    copies = moves(draft, "params/Dense_0", "backup/Dense_0")
    assert twins_along(draft, {old: (old, *news) for old, news in copies.items()}) == {}


def test_slots_know_their_new_places_after_moves_of_params_and_of_the_state() -> None:
    draft = draft_of("adam")
    moved = rekey(draft, moves(draft, "params/Dense_0", "params/a/b"))
    mu = moved.slots[LeafPath(("opt_state", 0, "mu", "a", "b", "kernel"))]
    assert str(mu.param) == "params/a/b/kernel"
    again = rekey(moved, moves(moved, "opt_state", "old/opt_state"))
    mu = again.slots[LeafPath(("old", "opt_state", 0, "mu", "a", "b", "kernel"))]
    assert str(mu.node) == "old/opt_state/0/mu"
    assert [str(c) for c in mu.clocks] == ["old/opt_state/0/count"]
    back = mu.place_for(LeafPath(("params", "c")))
    assert str(back) == "old/opt_state/0/mu/c"


def test_deleting_a_param_deletes_its_twins_and_holes() -> None:
    draft = draft_of("muon")
    gone = twins_along(draft, dict.fromkeys(moves(draft, "params/Dense_0", "x"), ()))
    assert len(gone) == 6
    assert all("Dense_0" in path and news == () for path, news in gone.items())


def test_what_many_slots_cannot_do_is_said_once_for_each_field() -> None:
    with pytest.raises(PlanError) as caught:
        edited(draft_of("adam"), Rescale(at="params", by=0.1, optimizer="transform"))
    assert [problem.path for problem in caught.value.problems] == [
        "opt_state/0/mu/Dense_0/bias",
        "opt_state/0/nu/Dense_0/bias",
    ]


@pytest.mark.parametrize(
    "edit", [Reinit(at=KERNEL, init="zeros"), Replace(at=KERNEL, with_=1.0)], ids=lambda e: e.name
)
def test_new_values_leave_nothing_to_transform(edit: Any) -> None:
    with pytest.raises(PlanError, match="nothing to follow"):
        edited(draft_of("adam", "adam"), msgspec.structs.replace(edit, optimizer="transform"))


def test_flags_and_counts_are_never_filled() -> None:
    after = edited(draft_of("zero_nans", "adam"), Reinit(at="params", init="zeros"))
    assert [str(p) for p in after.changed if "found_nan" in p or "count" in p] == []


def test_a_tree_without_optimizer_state_has_nothing_to_carry() -> None:
    tree = tree_of({"params": {"w": np.ones(3, np.float32)}})
    draft = Draft.of(tree, "print", survey(tree).slots)
    after = edited(draft, Rescale(at="params", by=2.0))
    assert [str(p) for p in after.changed] == ["params/w"]
    assert after.notes == ()


def told(slots: dict[str, dict[str, Any]], name: str = "clip_adam") -> Draft:
    tree = tree_of({"params": PARAMS, "opt_state": state_of(name)})
    return Draft.of(tree, "print", survey(tree, slots=slots).slots)


MU, NU = "opt_state/1/0/mu", "opt_state/1/0/nu"


def test_saying_what_half_of_a_state_is_names_the_half_that_is_missing() -> None:
    draft = told({MU: {"power": -1}})
    with pytest.raises(PlanError, match=f"gives '{MU}', and '{NU}' is missing") as caught:
        edited(draft, Rescale(at=KERNEL, by=2.0))
    (problem,) = caught.value.problems
    assert (problem.field, problem.path) == ("slots", f"{NU}/Dense_0/kernel")
    kept = edited(draft, Rescale(at=KERNEL, by=2.0, optimizer="keep"))
    assert operations(kept, f"{MU}/Dense_0/kernel") == []


@pytest.mark.parametrize(
    ("mu", "nu"),
    [
        (MU, NU),
        (f"{MU}/**", f"{NU}/*"),
        ("opt_state/*/0/mu", "**/nu"),
        ("opt_state/[0-9]/0/mu/**", "/opt_state/1/0/nu/"),
    ],
)
def test_slots_are_said_by_the_path_of_their_tree_or_a_pattern_of_it(mu: str, nu: str) -> None:
    after = edited(
        told({mu: {"power": -1}, nu: {"power": -2, "even": True}}), Rescale(at=KERNEL, by=-2.0)
    )
    assert operations(after, f"{MU}/Dense_0/kernel") == [Scale(-0.5)]
    assert operations(after, f"{NU}/Dense_0/kernel") == [Scale(0.25)]
    assert after.notes == ()


def test_slots_that_are_said_twice_or_nowhere_are_refused() -> None:
    with pytest.raises(PlanError, match=f"names '{MU}' twice"):
        told({MU: {"power": -1}, "**/mu": {"power": 0}})
    with pytest.raises(PlanError, match="not in the tree") as caught:
        told({"opt_state/*/mw": {"power": -1}})
    assert "trees of slots" in caught.value.problems[0].why


def test_an_initial_value_that_is_said_alone_fills_the_slots() -> None:
    draft = told({"opt_state/0/step_sizes": {"fresh": 0.25}}, "rprop")
    after = edited(draft, Rescale(at=KERNEL, by=2.0, optimizer="reset"))
    assert operations(after, "opt_state/0/step_sizes/Dense_0/kernel") == [Fill(0.25)]


PER_LEAF = {
    "lars": ("lars", "3/trace"),
    "adafactor_momentum": ("adafactor", "4/ema"),
    "adafactor_noparamscale": ("adafactor-without-parameter-scale", "3/ema"),
    "novograd": ("novograd", "0/mu"),
}


@pytest.mark.parametrize("name", PER_LEAF)
def test_behind_a_norm_of_a_whole_leaf_one_factor_is_followed_and_no_array(name: str) -> None:
    kind, node = PER_LEAF[name]
    slot = f"opt_state/{node}/Dense_0/kernel"
    draft = draft_of(name, kind)
    assert policy(edited(draft, Rescale(at=KERNEL, by=2.0)), slot) == "transform"
    assert policy(edited(draft, Normalize(at=KERNEL)), slot) == "transform"
    after = edited(draft, Normalize(at=KERNEL, axis=0))
    assert policy(after, slot) == "keep"
    assert any("no array of factors" in note for note in after.notes)
    with pytest.raises(PlanError, match="cannot follow"):
        edited(draft, Normalize(at=KERNEL, axis=0, optimizer="transform"))
