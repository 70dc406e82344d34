"""What an edit does is said by its effect; what its fields are called means nothing."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, get_args

import msgspec
import numpy as np
import pytest
from ruamel.yaml import YAML

from surgery_cli.compute.host import HostKit
from surgery_cli.draft.effect import (
    Draws,
    Effect,
    Keeps,
    Masks,
    Means,
    Rearranges,
    Resamples,
    Scales,
    Sets,
    Shifts,
    Takes,
    constant_after,
    is_new,
    may_be_negative,
)
from surgery_cli.draft.expression import Made, Recipe
from surgery_cli.draft.kernel import Kernel, Kit, Place
from surgery_cli.draft.kernels.cut import Grow
from surgery_cli.draft.recipe import Draft
from surgery_cli.engine.evaluation import Evaluation
from surgery_cli.errors import PlanError
from surgery_cli.operations.base import LeafOperation
from surgery_cli.operations.replace import Replace
from surgery_cli.operations.squeeze import Squeeze
from surgery_cli.operations.table import operations
from surgery_cli.optimizer.follow.answers import default_policy
from surgery_cli.optimizer.follow.states import States
from surgery_cli.planning import Plan
from surgery_cli.resolution import resolve
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec
from tests.operations.value_edits import ArraySource, drafted_example

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
        (Rearranges(), False, 2.0),
        (Resamples(), False, None),
        (Rearranges(Grow(0, 0, 4, 2), Sets(-1.0)), True, None),
        (Rearranges(Grow(0, 0, 4, 2), Keeps()), False, None),
    ],
)
def test_what_follows_from_an_effect(effect: Effect, negative: bool, constant: float) -> None:
    assert may_be_negative(effect) is negative
    assert constant_after(effect, 2.0) == constant


def values_after(
    kind: type[LeafOperation], leaf: Any, donor: Any
) -> Iterator[tuple[Effect, Any, Callable[[Recipe], Any]]]:
    """For each leaf that the example of an operation names: its effect, its values, and what recipes come to."""
    (edit,) = msgspec.convert(YAML(typ="safe").load(kind.example), list[kind])
    draft, sources = drafted_example(kind, leaf, donor)

    def values_of(recipe: Recipe) -> Any:
        evaluation = Evaluation(recipe, sources, HostKit(), recipe.spec.shape)
        return evaluation.block(tuple(slice(0, n) for n in recipe.spec.shape))

    for path, output in draft.leaves.items():
        if path not in draft.slots and isinstance(output.recipe, Made):
            effect = edit.effect_on(output.recipe, draft.source_tree[path])
            yield effect, values_of(output.recipe).astype(np.float64), values_of


@pytest.mark.parametrize("kind", VALUE_EDITS, ids=lambda kind: kind.__name__)
def test_an_effect_is_what_happens_to_the_values(kind: type[LeafOperation]) -> None:
    """Optimizer state follows what the effect says; a kernel that does something else would spoil it in silence."""
    draws = np.random.default_rng(3)
    leaf, donor, another = (draws.normal(size=(4, 3)).astype(np.float32) for _ in range(3))
    edited = list(values_after(kind, leaf, donor))
    assert edited or kind in BY_REFERENCE
    for effect, after, values_of in edited:
        match effect:
            case Keeps():
                np.testing.assert_allclose(after, leaf, rtol=2**-7)
            case Scales(by=by):
                assert by is not None, "of one leaf the factor is known"
                factor = by if isinstance(by, float | int) else values_of(by)
                np.testing.assert_allclose(after, leaf * np.asarray(factor), rtol=1e-5)
            case Sets(to=number):
                assert (after == np.float32(number)).all()
            case Masks(by=mask):
                assert mask is not None
                np.testing.assert_array_equal(after, np.where(values_of(mask) != 0, leaf, 0))
            case Draws() | Takes():
                again = [values for _, values, _ in values_after(kind, another, donor)]
                assert any(np.array_equal(values, after) for values in again)
            case Means():
                moved = [values for _, values, _ in values_after(kind, leaf + 1, donor)]
                weights = np.unique(np.round(moved[0] - after, 4))
                assert len(weights) == 1
                assert 0 <= weights[0] <= 1
            case Shifts(keeps_signs=True):
                positive = [values for _, values, _ in values_after(kind, abs(leaf), abs(donor))]
                assert all((values >= 0).all() for values in positive)
            case Shifts():
                assert not np.allclose(after, leaf)
            case Resamples():
                twice, shifted = (
                    next(values for _, values, _ in values_after(kind, other, donor))
                    for other in (2 * leaf, leaf + 1)
                )
                np.testing.assert_allclose(twice, 2 * after, 1e-6)
                np.testing.assert_allclose(shifted, after + 1, 1e-5)
            case Rearranges(fill=fill):
                kept = np.isin(after, leaf.astype(np.float64))
                new = after[~kept]
                assert (new == fill.to).all() if isinstance(fill, Sets) else not new.size or fill
                assert not new.size or leaf.min() <= new.min() <= new.max() <= leaf.max()
                assert kept.sum() >= min(after.size, leaf.size)


BY_REFERENCE = {Replace, Squeeze}
"""Of what their examples name no kernel makes anything: a donor's leaf is taken as it is, and no axis is 1 long."""
