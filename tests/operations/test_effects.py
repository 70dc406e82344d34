"""What an edit does is said by its effect; what its fields are called means nothing."""

from collections.abc import Sequence
from typing import Any, get_args

import msgspec
import numpy as np
import pytest
from ruamel.yaml import YAML

from surgery_cli.draft.effect import (
    Draws,
    Effect,
    Keeps,
    Masks,
    Means,
    Scales,
    Sets,
    Shifts,
    Takes,
    constant_after,
    is_new,
    may_be_negative,
)
from surgery_cli.draft.kernel import Kernel, Kit, Place
from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import PlanError
from surgery_cli.operations.base import LeafOperation
from surgery_cli.operations.table import operations
from surgery_cli.optimizer.follow.answers import default_policy
from surgery_cli.optimizer.follow.states import States
from surgery_cli.plan import Plan
from surgery_cli.resolution import resolve
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec
from tests.operations.value_edits import ArraySource

VALUE_EDITS = [kind for kind in operations().values() if issubclass(kind, LeafOperation)]


class Add(Kernel, frozen=True, tag="add"):
    """A leaf plus a number."""

    number: float

    def compute(self, blocks: Sequence[Any], kit: Kit, at: Place) -> Any:
        return kit.in_float32(blocks[0], lambda x: x + self.number)


class Shift(LeafOperation, tag="shift", kw_only=True, frozen=True):
    """Add a number: an operation whose field happens to be called as that of `rescale`."""

    by: float
    init: str = "normal"

    @property
    def effect(self) -> Effect:
        return Shifts()

    def kernel(self, path: LeafPath, spec: LeafSpec, scene: States) -> Kernel:
        return Add(self.by)


def adam_state() -> ArraySource:
    w = np.ones((4, 3), np.float32)
    arrays = {"params/w": w, "opt_state/0/mu/w": w, "opt_state/0/nu/w": w}
    return ArraySource({**arrays, "opt_state/0/count": np.asarray(7, np.int32)})


def shifted(**fields: Any) -> Draft:
    plan = Plan(edits=[Shift(at="params/w", **fields)], optimizer_kind="adam")
    return resolve(plan, adam_state(), pytest.fail)


@pytest.mark.parametrize("kind", VALUE_EDITS, ids=lambda kind: kind.__name__)
def test_every_value_edit_says_its_effect(kind: type[LeafOperation]) -> None:
    (edit,) = msgspec.convert(YAML(typ="safe").load(kind.example), list[kind])
    assert isinstance(edit.effect, get_args(Effect))
    assert is_new(edit.effect) == isinstance(edit.effect, Sets | Draws | Takes)
    assert default_policy(edit.effect) in ("keep", "transform", "warm")


def test_an_edit_that_adds_keeps_the_slots_whatever_its_field_is_called() -> None:
    draft = shifted(by=0.0)
    slots = {str(path): draft.leaves[path] for path in draft.slots}
    assert {text: (recipe.edits, recipe.policy) for text, recipe in slots.items()} == {
        "opt_state/0/mu/w": ((), "keep"),
        "opt_state/0/nu/w": ((), "keep"),
    }
    assert not any("times as large" in note or "draw" in note for note in draft.notes)


def test_nothing_follows_an_edit_that_adds_by_transform() -> None:
    with pytest.raises(PlanError, match="nothing to follow in 'shift'"):
        shifted(by=0.001, optimizer="transform")


def test_an_edit_that_adds_restarts_first_moments_alone_when_warm() -> None:
    draft = shifted(by=0.001, optimizer="warm")
    mu, nu = (draft.leaves[LeafPath(("opt_state", "0", name, "w"))] for name in ("mu", "nu"))
    assert [constant_after(edit.effect, None) for edit in mu.edits] == [0.0]
    assert (nu.edits, nu.policy) == ((), "warm")


def test_an_edit_that_adds_to_squares_is_refused() -> None:
    edit = Shift(at="opt_state/0/nu/w", by=1.0, twins="named")
    with pytest.raises(PlanError, match="would become negative"):
        resolve(Plan(edits=[edit], optimizer_kind="adam"), adam_state(), pytest.fail)


@pytest.mark.parametrize(
    ("effect", "negative", "constant"),
    [
        (Keeps(), False, 2.0),
        (Scales(0.5), False, 1.0),
        (Scales(-1), True, -2.0),
        (Scales(), False, None),
        (Sets(3.0), False, 3.0),
        (Sets(-1), True, -1),
        (Masks(), False, None),
        (Draws(), True, None),
        (Draws(is_nonnegative=True), False, None),
        (Takes(), False, None),
        (Means(), False, None),
        (Shifts(), True, None),
        (Shifts(keeps_signs=True), False, None),
    ],
)
def test_what_follows_from_an_effect(effect: Effect, negative: bool, constant: float) -> None:
    assert may_be_negative(effect) is negative
    assert constant_after(effect, 2.0) == constant
