"""How a slot follows its param by a power of its factor, or by its mask; see ``rearranged`` for maps."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from surgery_cli.draft.effect import Effect, Keeps, Masks, Scales
from surgery_cli.draft.expression import Made, Recipe, Stored, made
from surgery_cli.draft.kernels.fill import Mean, Spread
from surgery_cli.draft.kernels.mask import Masked
from surgery_cli.draft.kernels.scale import FollowFactor, Scale, ScaleAboveStart, power_of
from surgery_cli.draft.recipe import Output
from surgery_cli.draft.settings import check_fits
from surgery_cli.draft.slots import Slot
from surgery_cli.errors import PlanError
from surgery_cli.tree.dtypes import is_complex
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.words.advice import worded
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage


class Change(NamedTuple):
    """What becomes of a slot: the word for it in documents, its effect on the slot, and the recipe."""

    name: str
    effect: Effect
    recipe: Recipe


def followed(slot: Slot, recipe: Recipe, effect: Effect) -> tuple[Change, ...] | None:
    """What a slot, of this recipe so far, becomes when its param is edited with this effect.

    Empty if it stays right as it is; None if no rule is known.

    Raises:
        PlanError: the factor is complex.
    """
    match effect:
        case Scales() | Masks() if slot.relation in ("one", "hole"):
            return ()
        case Masks() if slot.is_second_moment or (slot.is_even and not slot.is_params_like):
            return ()  # the next steps there are no larger than usual
        case Masks() if slot.fresh is None and slot.power is None and not slot.is_params_like:
            return None  # nothing tells what it is, and it may hold squares
        case Masks():
            return masked(slot, recipe, effect, slot.fresh)
        case Scales() if not slot.is_settled:
            return None
        case Scales(by=float() | int() as factor):
            return _by_number(slot, recipe, factor)
        case Scales(by=Stored() | Made() as factor):
            return _by_array(slot, recipe, factor, is_positive=effect.is_positive)
        case _:
            return None


def _by_number(slot: Slot, recipe: Recipe, by: float) -> tuple[Change, ...] | None:
    assert slot.power is not None
    factor = power_of(by, slot.power, even=slot.is_even)
    if not factor:
        return None
    if slot.start:
        above = ScaleAboveStart(factor, slot.start, slot.is_even, slot.blur)
        follower = made(above, (recipe,), recipe.spec, slot.path)
        return (Change("scale_above_start", Scales(factor, above=slot.start), follower),)
    return (
        Change("rescale", Scales(factor), made(Scale(factor), (recipe,), recipe.spec, slot.path)),
    )


def _by_array(
    slot: Slot, recipe: Recipe, by: Recipe, *, is_positive: bool
) -> tuple[Change, ...] | None:
    is_one = is_positive and by.spec.shape == ()
    if not is_one and (slot.relation not in ("same", "stacked") or slot.is_per_leaf):
        return None
    assert slot.power is not None
    if is_positive and slot.power == 0:
        return ()
    if is_complex(by.spec.dtype):
        raise PlanError(
            f"'{slot.path}' cannot follow a complex factor",
            why="no rule is known for optimizer state",
            fix=worded("use {optimizer: keep} or `reset`"),
        )
    start = slot.start or 0.0
    where_zero = 0.0 if slot.is_params_like else slot.fresh
    if is_positive or slot.is_second_moment:
        where_zero = None
    is_open = slot.is_sign_open and not is_positive
    kernel = FollowFactor(slot.power, slot.is_even, start, slot.blur, where_zero, is_open)
    name = "scale_by_measured" if is_positive else "scale_by_power"
    scales = Scales(by, is_positive, start)
    return (Change(name, scales, made(kernel, (recipe, by), recipe.spec, slot.path)),)


def masked(
    slot: Slot, recipe: Recipe, effect: Masks, fresh: float | None
) -> tuple[Change, ...] | None:
    """A slot with its initial value, ``fresh``, where its param became 0; None if it has no element for each of that.

    Nothing was gathered there yet, which is 0 in a copy of the params, or where no other value is known.
    """
    if slot.relation not in ("same", "stacked") or effect.by is None:
        return None
    value = 0.0 if slot.is_params_like else fresh or 0.0
    check_fits(value, recipe.spec, "fill")
    kernel = Masked(value)
    return (Change("mask", effect, Made(kernel, (recipe, effect.by), recipe.spec, slot.path)),)


def grows_back(slot: Slot, name: str) -> Consequence:
    """What comes of first moments, of which ``slot`` is one, that stay where their params became 0."""
    return Consequence(
        DocsPage.OPTIMIZERS,
        worded(
            "'{}' is kept: what it gathered moves the zeros of '{}' in the next steps; {optimizer: transform}"
            " makes it 0 there",
            slot.node,
            name,
        ),
    )


def like_param(param: Output, recipe: Recipe) -> tuple[Change, ...] | None:
    """A copy of a param, of this recipe so far, after the param's own last edit: with all that it was computed with."""
    made, edit = param.recipe, param.edits[-1]
    if not isinstance(made, Made):
        return None
    old, new, spec = made.inputs[0].spec, made.spec, recipe.spec
    if (old.dtype, old.shape) != (new.dtype, new.shape):
        spec = msgspec.structs.replace(new, kind=spec.kind)
    same = msgspec.structs.replace(made, inputs=(recipe, *made.inputs[1:]), spec=spec)
    return (Change(edit.name, edit.effect, same),)


def at_mean(slot: Slot, recipe: Recipe, spec: LeafSpec | None = None) -> tuple[Change, ...]:
    """A second moment at its mean in every element; ``spec`` if it has another shape now.

    A single number is its own mean.
    """
    after = recipe.spec if spec is None else spec
    if recipe.spec.size <= 1 and after.shape == recipe.spec.shape:
        return ()
    return (mean_of(slot, recipe, after),)


def mean_of(slot: Slot, recipe: Recipe, spec: LeafSpec) -> Change:
    """A second moment, of this recipe or of another param's, at the mean in every element of ``spec``."""
    one = LeafSpec(kind=LeafKind.NUMPY, dtype="float64")
    mean = Made(Mean(), (recipe,), one, slot.path)
    return Change("fill_mean", Keeps(), Made(Spread(), (mean,), spec, slot.path))
