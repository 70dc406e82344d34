"""Operations that make a leaf of itself and its like in other checkpoints, which were trained from the same begin."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from surgery_cli.draft.effect import Effect, Shifts
from surgery_cli.draft.expression import Made, Recipe
from surgery_cli.draft.kernels.deltas import Difference
from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import PlanError
from surgery_cli.operations.base import Scene
from surgery_cli.operations.counterparts import counterparts, meet_all
from surgery_cli.operations.layered import (
    Layered,
    all_numbers,
    by_layer,
    check_layered,
    numbers_of,
    shown_layered,
)
from surgery_cli.operations.members import (
    MOST_NAMED,
    Member,
    copies_notes,
    left_out_notes,
    member_names,
    others_of,
    refuse_lacking,
    refuse_repeated,
)
from surgery_cli.operations.nonnegative import refuse_negative
from surgery_cli.operations.numeric import Numeric
from surgery_cli.operations.partners import Missing, Partnered
from surgery_cli.optimizer.follow.states import States
from surgery_cli.tree.dtypes import is_complex, item_bytes
from surgery_cli.tree.paths import LeafPath, Selection
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.words.advice import FieldName, worded
from surgery_cli.words.lists import listed
from surgery_cli.words.notes import Remark
from surgery_cli.words.pages import DocsPage

MakeLeaf = Callable[[LeafPath, Recipe], Recipe]
MergeLeaf = Callable[[LeafPath, Recipe, Sequence[Recipe]], Recipe]


class Merging(Partnered, Numeric, kw_only=True, frozen=True):
    """A merge of whole models. Subclasses say what becomes of a leaf and its like."""

    with_: Annotated[
        str | Annotated[tuple[str, ...], Meta(min_length=1)],
        Meta(description="The other checkpoints, or names in `sources`."),
    ] = msgspec.field(name="with")
    missing: Missing = "error"

    path_fields: ClassVar[tuple[str, ...]] = ("with",)
    least_others: ClassVar[int] = 1
    most_others: ClassVar[int | None] = None

    @property
    def effect(self) -> Effect:
        return Shifts()

    def others(self, scene: States) -> list[Member]:
        """The other members, in the order in which they are named."""
        return others_of(self._named, "", scene)

    @property
    def _named(self) -> tuple[str, ...]:
        return (self.with_,) if isinstance(self.with_, str) else self.with_

    def member_weights(self) -> tuple[Layered, ...]:
        """One for each of the others, or none for equal ones."""
        return ()

    def check_values(self) -> None:
        super().check_values()
        named, weights = self._named, self.member_weights()
        count = len(named)
        if count < self.least_others or (self.most_others or count) < count:
            wanted = "one" if self.most_others == 1 else f"at least {self.least_others}"
            raise PlanError(
                f"`{self.name}` takes {wanted} beside the source, and {count} {'is' if count == 1 else 'are'} named",
                why=worded("{with} names the others"),
                fix=worded("name them in {with}, one after the other"),
                field="with",
            )
        if weights and len(weights) != count:
            raise PlanError(
                f"{len(weights)} weights for {count} members",
                why=f"the members are {listed(named, 24)}; the source is the base, and has none",
                fix="give one weight for each of them, or none for equal ones",
                field="weights",
            )
        if not all(map(math.isfinite, all_numbers(weights))):
            raise PlanError("the weights are not all finite", fix="write numbers", field="weights")

    def check(self, named: Sequence[LeafPath], draft: Draft, scene: Scene) -> None:
        others = self.others(scene)
        is_edited = any(not draft.is_untouched(path) for path in named)
        refuse_repeated(others, scene, is_edited=is_edited, is_base=self.source_is_base)
        refuse_lacking(named, others, draft)
        if not self.is_between:
            refuse_negative(draft, named, "differences that are added")

    def output(self, spec: LeafSpec) -> LeafSpec:
        after = super().output(spec)
        if is_complex(spec.dtype) and not self.takes_complex:
            raise PlanError(
                f"{self.name} does not apply to {spec.type_text}",
                why="complex numbers have no order, and no sign",
                fix=worded("leave it out with {except}"),
            )
        return after

    takes_complex: ClassVar[bool] = True

    @property
    def is_between(self) -> bool:
        """True if what all members have at 0 or above stays so."""
        return False

    def meet(self, path: LeafPath, named: Selection, draft: Draft, scene: Scene) -> None:
        meet_all(path, self.others(scene))

    def partners(
        self, path: LeafPath, recipe: Recipe, others: Sequence[Member]
    ) -> tuple[Recipe, ...]:
        """The like of a leaf in the others."""
        return counterparts(path, recipe.spec, others, integers=self.integers, how="merged")

    def maker(self, named: Selection, draft: Draft, scene: Scene) -> MakeLeaf:
        others, merged = self.others(scene), self.merger(named, scene)

        def make(path: LeafPath, recipe: Recipe) -> Recipe:
            after = self.output(recipe.spec)
            if recipe.spec.has_array and not recipe.spec.size:
                return recipe
            made = merged(path, recipe, self.partners(path, recipe, others))
            return msgspec.structs.replace(made, spec=after) if made.spec != after else made

        return make

    def merger(self, named: Selection, scene: Scene) -> MergeLeaf:
        """What makes a leaf of itself and its like, in the spec of the leaf; overridden where numbers go by layers."""
        return self.merged

    def merged(self, path: LeafPath, recipe: Recipe, others: Sequence[Recipe]) -> Recipe:
        """A leaf of itself and its like, in its spec, where it hangs on nothing but these."""
        raise NotImplementedError

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        after = super().rewrite(draft, scene)
        if after.leaves == draft.leaves:  # an optional edit that names nothing
            return after
        others = self.others(scene)
        return after.noting(
            self._members_note(scene),
            *copies_notes(others, "", scene),
            *left_out_notes(others, self, draft),
        )

    def _members_note(self, scene: Scene) -> Remark:
        first, *names = member_names(self.others(scene), "", scene)
        weights = self.member_weights()
        if weights:
            names = [
                f"{name} × {shown_layered(one)}" for name, one in zip(names, weights, strict=True)
            ]
        role = ", the base" if self.source_is_base else ""
        return Remark(
            DocsPage.AVERAGES,
            f"merged: {first.removesuffix(')')}{role}), {listed(names, MOST_NAMED)}",
        )

    source_is_base: ClassVar[bool] = True
    """True if the source is what the others were trained from."""


def weights_by_layer(
    weights: Sequence[Layered], count: int, named: Selection
) -> Callable[[LeafPath], tuple[float, ...]]:
    """The weights of so many members for each leaf; 1 each if there are none."""
    each = [by_layer(weight, named, "weights") for weight in weights or (1.0,) * count]
    return lambda path: tuple(of(path) for of in each)


def shares_of(weights: Sequence[float]) -> tuple[float, ...]:
    """Weights divided by their sum.

    Raises:
        PlanError: it is 0.
    """
    total = math.fsum(weights)
    if total == 0:
        raise PlanError(
            "the weights add up to 0",
            why="they are divided by their sum",
            fix=worded("give weights whose sum is another number, or {normalize: false}"),
            field="weights",
        )
    return tuple(weight / total for weight in weights)


def difference(leaf: Recipe, base: Recipe, path: LeafPath, *, narrow: bool) -> Made:
    """What a leaf has beside the base: in float64 (complex128), or in float32 where ``narrow`` and that is enough."""
    wide = item_bytes(base.spec.dtype) > 4
    dtype = "float32" if narrow and not wide else "float64"
    if is_complex(base.spec.dtype):
        dtype = "complex128"
    spec = LeafSpec(
        kind=LeafKind.NUMPY,
        shape=base.spec.shape,
        dtype=dtype,
        chunk_shape=base.spec.chunk_shape,
        write_shape=base.spec.write_shape,
    )
    return Made(Difference(), (leaf, base), spec, path)


def refuse_nothing(value: Layered, field: str) -> None:
    """Raise PlanError for factors with which nothing would change, or all be lost; single layers may have none."""
    check_layered(value, field, -math.inf, math.inf, open_low=False)
    if not any(numbers_of(value)):
        raise PlanError(
            worded("{} cannot be {}", FieldName(field), shown_layered(value)),
            why="nothing of the others would be left",
            fix="write a number other than 0",
            field=field,
        )
