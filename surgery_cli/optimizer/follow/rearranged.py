"""Slots of params whose elements move: each gets the map in its own form, a factored moment after it is rebuilt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from surgery_cli.draft.arrangement import Arrangement, OnEach, rearranged, reshaped
from surgery_cli.draft.expression import Made, Recipe, made
from surgery_cli.draft.kernels.convert import Convert
from surgery_cli.draft.kernels.factors import Product
from surgery_cli.draft.kernels.fill import Fill
from surgery_cli.draft.kernels.sums import mean_along
from surgery_cli.draft.slots import LEAST_FACTORED, Slot
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec


class Move(NamedTuple):
    """What a map makes of a slot: its recipe, and how its shape follows from the param's from then on.

    Without a recipe nothing is known to follow the map, ``why`` not.
    """

    recipe: Recipe | None
    relation: str
    why: str = ""


class Mapped(NamedTuple):
    """An edit that moves the elements of a param: by which map, and what the param was and is."""

    map: Arrangement
    before: LeafSpec
    after: LeafSpec


def moved_slots(
    slots: Sequence[Slot], recipes: Mapping[LeafPath, Recipe], by: Mapped
) -> dict[LeafPath, Move]:
    """What becomes of the slots that one param has in one state, by path."""
    factored = [slot for slot in slots if slot.factoring is not None]
    found = _factored(factored, recipes, by) if factored else {}
    for slot in slots:
        if slot.factoring is None:
            found[slot.path] = _moved(slot, recipes[slot.path], by)
    return found


def _moved(slot: Slot, recipe: Recipe, by: Mapped) -> Move:
    match slot.relation:
        case "same":
            return Move(_arranged(recipe, by.map, slot), slot.relation)
        case "stacked":
            return Move(_arranged(recipe, OnEach(by.map), slot), slot.relation)
        case "scalar" | "one" | "hole":
            return Move(recipe, slot.relation)
        case _:
            return _unknown(slot, f"no rule is known for a {slot.name} of {slot.optimizer}")


def _arranged(recipe: Recipe, by: Arrangement, slot: Slot) -> Recipe:
    """The recipe with its elements moved; new places get the mean along their axis, of first moments 0."""
    inputs: tuple[Recipe, ...] = (recipe,)
    if by.grows is not None:
        inputs = (recipe, _filling(recipe, by.grows, slot))
    return made(by, inputs, by.output(recipe.spec), slot.path)


def _filling(recipe: Recipe, axis: int, slot: Slot) -> Recipe:
    leaf = recipe.spec
    if slot.is_second_moment:
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


def _factored(
    slots: Sequence[Slot], recipes: Mapping[LeafPath, Recipe], by: Mapped
) -> dict[LeafPath, Move]:
    """The three parts of a second moment, factored before, after, both or neither."""
    parts = {slot.factoring.part: slot for slot in slots if slot.factoring is not None}
    if len(parts) < 3:
        why = "the parts of a factored second moment follow together, and not all of them are here"
        return {slot.path: _unknown(slot, why) for slot in slots}
    row, column, whole = parts["row"], parts["column"], parts["whole"]
    r, c, v = (recipes[slot.path] for slot in (row, column, whole))
    had = v.spec.shape != by.before.shape
    if had and not _are_factors(r.spec, c.spec, by.before):
        why = "its shape is not that of the means which optax keeps of such a param"
        return {slot.path: _unknown(slot, why) for slot in slots}
    assert whole.factoring is not None
    has = whole.factoring.is_factored(by.after.shape)
    if has is None:
        why = (
            f"whether a param of shape {list(by.after.shape)} is factored depends on `min_dim_size_to_factor`,"
            f" which other params show not to be {LEAST_FACTORED}"
        )
        return {slot.path: _unknown(slot, why) for slot in slots}
    if not (had or has):
        v = _arranged(v, by.map, whole)
        return {row.path: Move(r, "one"), column.path: Move(c, "one"), whole.path: Move(v, "same")}
    first, second = factored_axes(by.after.shape) if has else (0, 0)
    if had and has:
        kept = _kept_factors(r, c, by, (first, second))
        if kept is not None:
            return {
                row.path: Move(kept[0], "factored"),
                column.path: Move(kept[1], "factored"),
                whole.path: Move(v, "one"),
            }
    moment = _arranged(_rebuilt(r, c, by.before, whole.path) if had else v, by.map, whole)
    if not has:
        spec = msgspec.structs.replace(moment.spec, dtype=v.spec.dtype, kind=v.spec.kind)
        moment = made(Convert(), (moment,), spec, whole.path)
        return {
            row.path: Move(_placeholder(r, row.path), "one"),
            column.path: Move(_placeholder(c, column.path), "one"),
            whole.path: Move(moment, "same"),
        }
    like = v if not had else r
    return {
        row.path: Move(_mean(moment, first, r if had else like, row.path), "factored"),
        column.path: Move(_mean(moment, second, c if had else like, column.path), "factored"),
        whole.path: Move(_placeholder(v, whole.path), "one"),
    }


def _are_factors(row: LeafSpec, column: LeafSpec, param: LeafSpec) -> bool:
    if len(param.shape) < 2:
        return False
    first, second = factored_axes(param.shape)
    return (row.shape, column.shape) == (_lacking(param, first), _lacking(param, second))


def _lacking(leaf: LeafSpec, axis: int) -> tuple[int, ...]:
    return (*leaf.shape[:axis], *leaf.shape[axis + 1 :])


def _kept_factors(
    row: Recipe, column: Recipe, by: Mapped, axes: tuple[int, int]
) -> tuple[Recipe, Recipe] | None:
    """The means themselves with their elements moved, where the map keeps both axes whole; they may change places."""
    found: dict[int, Recipe] = {}
    for recipe, axis in zip((row, column), factored_axes(by.before.shape), strict=True):
        rest = by.map.without(axis, by.before)
        if rest is None:
            return None
        kernel, place = rest
        path = recipe.path if isinstance(recipe, Made) else recipe.ref.path
        inputs: tuple[Recipe, ...] = (recipe,)
        if kernel.grows is not None:
            spec = msgspec.structs.replace(recipe.spec)
            mean = mean_along(recipe, kernel.grows, path)
            wide = msgspec.structs.replace(mean.spec, dtype=spec.dtype)
            inputs = (recipe, made(Convert(), (mean,), wide, path))
        found[place] = made(kernel, inputs, kernel.output(recipe.spec), path)
    if set(found) != set(axes):
        return None
    return found[axes[0]], found[axes[1]]


def _rebuilt(row: Recipe, column: Recipe, param: LeafSpec, path: LeafPath) -> Recipe:
    """The second moment that factors stand for, [the param's shape], in float32 or wider."""
    first, second = factored_axes(param.shape)
    mean = mean_along(row, second - (second > first), path)
    dtype = "float64" if row.spec.dtype == "float64" else "float32"
    spec = msgspec.structs.replace(param, dtype=dtype, kind=LeafKind.ARRAY, stored_bytes=None)
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
