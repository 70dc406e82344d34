"""Edits that compute with the values of leaves: floating ones, and integers where the edit says so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import Meta

from surgery_cli.draft.effect import Means
from surgery_cli.draft.expression import Made, Recipe
from surgery_cli.draft.kernels.integers import FromIntegers
from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import PlanError, Problem, raise_all
from surgery_cli.operations.base import LeafOperation, Scene
from surgery_cli.optimizer.follow.clocks import NEEDS_SLOTS
from surgery_cli.tree.dtypes import is_integer
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.words.advice import worded
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage

_NUMBERS = (LeafKind.ARRAY, LeafKind.NUMPY, LeafKind.SCALAR)


class Numeric(LeafOperation, kw_only=True, frozen=True):
    """An edit by arithmetic. Integers are computed in float64, which is exact up to 2^53, and rounded once."""

    integers: Annotated[
        bool,
        Meta(
            description="Compute integer leaves, too: exactly, then rounded to the nearest (ties to even); what their"
            " dtype does not hold is refused."
        ),
    ] = False

    def output(self, spec: LeafSpec) -> LeafSpec:
        if is_integers(spec):
            raise PlanError(
                f"{self.name} does not apply to {spec.type_text}",
                why="numeric edits change floating values only, unless they say otherwise",
                fix=worded(
                    "add {where_dtype: floating} to skip such leaves, or {integers: true} to compute and round them"
                ),
            )
        return super().output(spec)

    def widened(self, named: Iterable[LeafPath], draft: Draft) -> Draft:
        if not self.integers:
            return draft
        leaves = {path: draft.leaves[path] for path in named}
        if not isinstance(self.effect, Means):
            raise_all(_is_clock(path) for path in leaves if _drives_slots(path, draft))
        wide = {
            path: leaf.then(as_floats(leaf.recipe, path))
            for path, leaf in leaves.items()
            if is_integers(leaf.spec)
        }
        return draft.with_leaves(wide) if wide else draft

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        after = super().rewrite(draft, scene)
        changed = (path for path, leaf in after.leaves.items() if leaf is not draft.leaves[path])
        if not self.integers or any(is_integers(draft.leaves[path].spec) for path in changed):
            return after
        said = worded("{integers: true} changes nothing: no integer leaf is edited")
        if not self.patterns:
            said += "; without a pattern only floating leaves are, and `'**'` names all"
        return after.noting(Consequence(DocsPage.OPERATIONS, said))


def _drives_slots(path: LeafPath, draft: Draft) -> bool:
    clock = draft.clock_at(path)
    return clock is not None and clock.drives in NEEDS_SLOTS


def _is_clock(path: LeafPath) -> Problem:
    return Problem(
        f"'{path}' counts the steps of slots, and is no number to compute with",
        why="the optimizer corrects what they hold for just so many steps",
        fix=worded("leave it out with {except}, or `set` it to the number that is meant"),
        path=str(path),
        field="at",
    )


def is_integers(spec: LeafSpec) -> bool:
    """True for integers that are numbers: no keys."""
    return is_integer(spec.dtype) and spec.kind in _NUMBERS


def as_floats(recipe: Recipe, path: LeafPath) -> Recipe:
    """Integers as float64, in which edits compute."""
    spec = msgspec.structs.replace(
        recipe.spec, dtype="float64", kind=LeafKind.ARRAY, stored_bytes=None
    )
    return Made(FromIntegers(), (recipe,), spec, path)
