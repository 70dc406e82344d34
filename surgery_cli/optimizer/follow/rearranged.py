"""Slots of params whose elements move: each gets the map in its own form, a factored moment after it is rebuilt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import msgspec

from surgery_cli.draft.arrangement import ShapeMap, rearranged, reshaped
from surgery_cli.draft.expression import Made, Recipe, made
from surgery_cli.draft.kernels.convert import Convert
from surgery_cli.draft.kernels.factors import Product
from surgery_cli.draft.kernels.fill import Fill
from surgery_cli.draft.kernels.sums import mean_along
from surgery_cli.draft.slots import Slot
from surgery_cli.optimizer.follow.refusals import SETTLES_FACTORING, unknown_factoring
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.words.lists import listed


class Move(NamedTuple):
    """What a map makes of a slot: its recipe, and how its shape follows from the param's from then on.

    ``why`` says why it cannot follow the map, ``settled_by`` what would settle that, if anything; the recipe, if there
    is one, is then of the shape in which it restarts. ``is_model``: it stands for what it was, as far as means can.
    """

    recipe: Recipe | None
    relation: str
    why: str = ""
    settled_by: str = ""
    is_model: bool = False

    def is_stuck(self, *, restarts: bool) -> bool:
        """True if the slot cannot become what it must: follow the map, or restart in its new shape."""
        return self.recipe is None or bool(self.why and not restarts)


class Mapped(NamedTuple):
    """An edit that moves the elements of a param: by which map, of what it is made (one or several), and what it is."""

    map: ShapeMap
    before: tuple[LeafSpec, ...]
    after: LeafSpec


Inputs: TypeAlias = Mapping[LeafPath, tuple[Recipe, ...]]
"""What each slot is made of: the same slot of every param of which its own is made."""


def moved_slots(slots: Sequence[Slot], recipes: Inputs, by: Mapped) -> dict[LeafPath, Move]:
    """What becomes of the slots that one param has in one state, by path."""
    factored = [slot for slot in slots if slot.factoring is not None]
    found = _factored(factored, recipes, by) if factored else {}
    vectors = [slot for slot in slots if slot.relation == "axis"]
    found |= _vectors(vectors, recipes, by) if vectors else {}
    for slot in slots:
        if slot.path not in found:
            found[slot.path] = _moved(slot, recipes[slot.path], by)
    return found


def _moved(slot: Slot, recipes: tuple[Recipe, ...], by: Mapped) -> Move:
    first = recipes[0]
    match slot.relation:
        case "same" | "stacked" if by.map.regroups and (why := _unlike(recipes)):
            return _unknown(slot, why)
        case "same":
            return Move(_arranged(recipes, by.map, slot), slot.relation)
        case "stacked":
            return Move(_arranged(recipes, by.map.on_each(), slot), slot.relation)
        case "scalar" if by.map.regroups:
            return Move(first, slot.relation, "it is one number for a whole leaf, and these differ")
        case "scalar" | "one" | "hole":
            return Move(first, slot.relation)
        case _:
            return _unknown(slot, f"no rule is known for a {slot.title}")


def _vectors(slots: Sequence[Slot], recipes: Inputs, by: Mapped) -> dict[LeafPath, Move]:
    """Vectors for the axes of a param, one each: they move with their axes, where these stay apart."""
    (leaf, *_), moved = by.before, dict[int, Recipe]()
    for slot in slots:
        own = None if slot.axis is None else by.map.along(slot.axis, leaf)
        if own is not None:
            moved[own[1]] = _arranged(recipes[slot.path][:1], own[0], slot)
    if len(leaf.shape) != len(by.after.shape) or moved.keys() != {slot.axis for slot in slots}:
        why = "it is a vector for one axis, and the edit makes other axes of these"
        return {slot.path: _unknown(slot, why) for slot in slots}
    return {slot.path: Move(moved[slot.axis or 0], "axis") for slot in slots}


def _unlike(recipes: Sequence[Recipe]) -> str:
    """How the parts differ of which a slot would be made; '' if they do not."""
    dtypes = dict.fromkeys(recipe.spec.dtype for recipe in recipes)
    return f"its parts are {listed(dtypes, word='and')}" if len(dtypes) > 1 else ""


def _arranged(recipes: tuple[Recipe, ...], by: ShapeMap, slot: Slot) -> Recipe:
    """The recipes with their elements moved; new places get the mean along their axis, of first moments 0."""
    if _may_hold_squares(slot):
        by = by.of_squares
    if by.grows is not None:
        recipes = (*recipes, _filling(recipes[0], by.grows, slot))
    return made(by, recipes, by.output(recipes[0].spec), slot.path)


def _may_hold_squares(slot: Slot) -> bool:
    """True if the optimizer may take roots of the slot, or divide by it: it does, or nothing tells what it is."""
    is_unknown = slot.power is None and slot.fresh is None and not slot.is_params_like
    return slot.is_even or slot.is_sign_open or slot.is_second_moment or is_unknown


def _filling(recipe: Recipe, axis: int, slot: Slot) -> Recipe:
    leaf = recipe.spec
    if _may_hold_squares(slot):
        mean = mean_along(recipe, axis, slot.path)
        spec = msgspec.structs.replace(mean.spec, dtype=leaf.dtype)
        return made(Convert(), (mean,), spec, slot.path)
    return Made(Fill(0.0), (), LeafSpec(kind=LeafKind.NUMPY, dtype=leaf.dtype), slot.path)


def _unknown(slot: Slot, why: str) -> Move:
    return Move(None, slot.relation, why)


# --- factored second moments ---------------------------------------------------------------------------------


def factored_axes(shape: Sequence[int]) -> tuple[int, int]:
    """The axes over which means are kept, that of the rows first: the largest, and the second largest.

    Source: optax.scale_by_factored_rms, ``d0`` and ``d1``.

    >>> factored_axes((256, 1000)), factored_axes((200, 200)), factored_axes((3, 300, 200))
    ((1, 0), (1, 0), (1, 2))
    """
    second, first = sorted(range(len(shape)), key=shape.__getitem__)[-2:]
    return first, second


def _factored(slots: Sequence[Slot], recipes: Inputs, by: Mapped) -> dict[LeafPath, Move]:
    """The three parts of a second moment, factored before, after, both or neither."""
    parts = {slot.factoring.part: slot for slot in slots if slot.factoring is not None}
    if len(parts) < 3:
        why = "the parts of a factored second moment follow together, and not all of them are here"
        return {slot.path: _unknown(slot, why) for slot in slots}
    row, column, whole = parts["row"], parts["column"], parts["whole"]
    moments = [
        _Moment(r, c, v, param)
        for r, c, v, param in zip(
            recipes[row.path], recipes[column.path], recipes[whole.path], by.before, strict=True
        )
    ]
    if not all(moment.is_known for moment in moments):
        why = "its shape is not that of the means which optax keeps of such a param"
        return {slot.path: _unknown(slot, why) for slot in slots}
    assert whole.factoring is not None
    has = whole.factoring.is_factored(by.after.shape)
    if has is None:
        why = unknown_factoring(by.after.shape)
        return {slot.path: Move(None, slot.relation, why, SETTLES_FACTORING) for slot in slots}
    had = [moment.is_factored for moment in moments]
    r, c, v, _ = moments[0]
    if not any(had) and not has:
        v = _arranged(tuple(moment.whole for moment in moments), by.map, whole)
        return {row.path: Move(r, "one"), column.path: Move(c, "one"), whole.path: Move(v, "same")}
    first, second = factored_axes(by.after.shape) if has else (0, 0)
    if all(had) and has and (kept := _kept_factors(moments, by, (first, second))) is not None:
        return {
            row.path: Move(kept[0], "factored"),
            column.path: Move(kept[1], "factored"),
            whole.path: Move(v, "one"),
        }
    rebuilt = tuple(_in_full(moment, whole.path) for moment in moments)
    moment = _arranged(rebuilt if any(had) else tuple(m.whole for m in moments), by.map, whole)
    if not has:
        spec = msgspec.structs.replace(moment.spec, dtype=v.spec.dtype, kind=v.spec.kind)
        moment = made(Convert(), (moment,), spec, whole.path)
        return {
            row.path: Move(_placeholder(r, row.path), "one", is_model=True),
            column.path: Move(_placeholder(c, column.path), "one", is_model=True),
            whole.path: Move(moment, "same", is_model=True),
        }
    like = (r, c) if had[0] else (v, v)
    return {
        row.path: Move(_mean(moment, first, like[0], row.path), "factored", is_model=True),
        column.path: Move(_mean(moment, second, like[1], column.path), "factored", is_model=True),
        whole.path: Move(_placeholder(v, whole.path), "one", is_model=True),
    }


class _Moment(NamedTuple):
    """The second moment of one param: its means over two axes, or itself, and what the param is."""

    row: Recipe
    column: Recipe
    whole: Recipe
    param: LeafSpec

    @property
    def is_factored(self) -> bool:
        return self.whole.spec.shape != self.param.shape

    @property
    def is_known(self) -> bool:
        return not self.is_factored or _are_factors(self.row.spec, self.column.spec, self.param)


def _are_factors(row: LeafSpec, column: LeafSpec, param: LeafSpec) -> bool:
    if len(param.shape) < 2:
        return False
    first, second = factored_axes(param.shape)
    return (row.shape, column.shape) == (_lacking(param, first), _lacking(param, second))


def _lacking(leaf: LeafSpec, axis: int) -> tuple[int, ...]:
    return (*leaf.shape[:axis], *leaf.shape[axis + 1 :])


def _kept_factors(
    moments: Sequence[_Moment], by: Mapped, axes: tuple[int, int]
) -> tuple[Recipe, Recipe] | None:
    """The means themselves with their elements moved, where the map keeps both axes whole; they may change places."""
    found: dict[int, Recipe] = {}
    kept_axes = factored_axes(by.before[0].shape)
    if any(factored_axes(param.shape) != kept_axes for param in by.before):
        return None
    means = (tuple(m.row for m in moments), tuple(m.column for m in moments))
    for recipes, axis in zip(means, kept_axes, strict=True):
        rest = by.map.without(axis, by.before[0])
        if rest is None:
            return None
        kernel, place = rest
        recipe = recipes[0]
        path = recipe.path if isinstance(recipe, Made) else recipe.ref.path
        inputs = recipes
        if kernel.grows is not None:
            mean = mean_along(recipe, kernel.grows, path)
            wide = msgspec.structs.replace(mean.spec, dtype=recipe.spec.dtype)
            inputs = (recipe, made(Convert(), (mean,), wide, path))
        found[place] = made(kernel, inputs, kernel.output(recipe.spec), path)
    if set(found) != set(axes):
        return None
    return found[axes[0]], found[axes[1]]


def _in_full(moment: _Moment, path: LeafPath) -> Recipe:
    """A second moment, factored or not, in float32 or wider."""
    if moment.is_factored:
        return _rebuilt(moment.row, moment.column, moment.param, path)
    spec = msgspec.structs.replace(
        moment.whole.spec, dtype=_wide(moment.whole.spec.dtype), kind=LeafKind.ARRAY
    )
    return made(Convert(), (moment.whole,), spec, path)


def _wide(dtype: str) -> str:
    return "float64" if dtype == "float64" else "float32"


def _rebuilt(row: Recipe, column: Recipe, param: LeafSpec, path: LeafPath) -> Recipe:
    """The second moment that factors stand for, [the param's shape], in float32 or wider."""
    first, second = factored_axes(param.shape)
    mean = mean_along(row, second - (second > first), path)
    spec = msgspec.structs.replace(
        param, dtype=_wide(row.spec.dtype), kind=LeafKind.ARRAY, stored_bytes=None
    )
    return Made(Product(first, second), (row, column, mean), spec, path)


def _mean(moment: Recipe, axis: int, like: Recipe, path: LeafPath) -> Recipe:
    """One factor of a second moment, held as another slot of the state is."""
    mean = mean_along(moment, axis, path, drop=True)
    leaf = moment.spec
    origins = [n for n in range(len(leaf.shape)) if n != axis]
    spec = rearranged(leaf, mean.spec.shape, origins)
    spec = msgspec.structs.replace(spec, dtype=like.spec.dtype, kind=like.spec.kind)
    return made(Convert(), (mean,), spec, path)


def _placeholder(recipe: Recipe, path: LeafPath) -> Recipe:
    """What stands where a part has nothing to hold."""
    if recipe.spec.shape == (1,):
        return recipe
    spec = msgspec.structs.replace(reshaped(recipe.spec, (1,)), sharding=None)
    return Made(Fill(0.0), (), spec, path)
