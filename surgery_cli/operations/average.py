"""Average leaves over several checkpoints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from surgery_cli.draft.effect import Effect, Means
from surgery_cli.draft.expression import LeafRef, Recipe, Stored
from surgery_cli.draft.kernel import Kernel, Kit, Place
from surgery_cli.draft.kernels.lost_values import may_lose, refuse_lost
from surgery_cli.draft.recipe import Draft, is_numeric
from surgery_cli.draft.source_leaves import find_leaf
from surgery_cli.errors import Gathering, PlanError
from surgery_cli.operations.averaged_state import state_notes
from surgery_cli.operations.base import Scene
from surgery_cli.operations.members import (
    MOST_NAMED,
    Member,
    check_fits,
    copies_notes,
    member_names,
    members_note,
    others_of,
    refuse_lacking,
    refuse_repeated,
)
from surgery_cli.operations.nonnegative import refuse_negative
from surgery_cli.operations.numeric import Numeric, as_floats, is_integers
from surgery_cli.operations.partners import Missing, Partnered
from surgery_cli.operations.step_ranges import PATTERN as STEPS
from surgery_cli.optimizer.follow.states import States
from surgery_cli.tree.paths import LeafPath, Selection
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.advice import worded
from surgery_cli.words.lists import listed


class Average(Partnered, Numeric, tag="average", kw_only=True, frozen=True):
    """Average leaves over several checkpoints; without a pattern, every floating leaf, optimizer state included.

    Complex leaves and Python floats count as floating. The checkpoint that is edited is the first member, and
    everything that is not averaged comes from it; the preview names what may differ in the others. The others
    follow in the order of `with`, or of their steps; the preview names them all, with their weights. None may stand
    twice. Negative weights are refused for what an optimizer takes the root of. Sums are taken in float64 and rounded
    once, to the leaf's own dtype. Memory holds one block of one member at a time.

    Of params alone, slots start warm; `--optimizer transform` gives each the same mean over the members, where their
    optimizers are of one kind and have counted the same steps.

    Source: Izmailov et al., Averaging Weights Leads to Wider Optima and Better Generalization; Wortsman et al.,
    Model soups.
    """

    with_: Annotated[
        str | tuple[str, ...],
        Meta(description="The other members: checkpoints, or names in `sources`."),
    ] = msgspec.field(name="with", default=())
    steps: Annotated[
        str,
        Meta(
            pattern=STEPS,
            examples=["100..500"],
            description="`A..B`: the steps from A to B of the run in `with`, or else of this run, are members;"
            " none of them may be missing. Or `A,B,C`.",
        ),
    ] = ""
    weights: Annotated[
        tuple[float, ...],
        Meta(
            description="One for each member, this checkpoint first, then in the order of `with` or of the steps;"
            " they are divided by their sum."
        ),
    ] = ()

    missing: Missing = "error"

    example: ClassVar[str] = "- op: average\n  at: params\n  with: runs/other\n  weights: [3, 1]\n"
    selects_everything_without_at: ClassVar[bool] = True
    path_fields: ClassVar[tuple[str, ...]] = ("with",)

    def selectable(self, spec: LeafSpec) -> bool:
        if self.patterns:
            return super().selectable(spec)
        return is_numeric(spec)

    def check(self, named: Sequence[LeafPath], draft: Draft, scene: Scene) -> None:
        others = self._others(scene)
        self._check_weights(member_names(others, self.steps, scene))
        is_edited = any(not draft.is_untouched(path) for path in named)
        refuse_repeated(others, scene, is_edited=is_edited)
        slots = [slot.path for path in named for slot in draft.slots_of.get(path, ())]
        follow = self.twins != "literal" and scene.policy(self) == "transform"
        refuse_negative(draft, [*named, *slots] if follow else named, _of_usual_size(self.weights))
        refuse_lacking(named, others, draft)

    def meet(self, path: LeafPath, named: Selection, draft: Draft, scene: Scene) -> None:
        for member in self._others(scene):
            if path not in member.tree:
                find_leaf(member.text, member.source, str(path), field="with")

    def kernel(self, path: LeafPath, spec: LeafSpec, scene: States) -> Kernel:
        return WeightedMean(self.weights)

    def inputs(self, path: LeafPath, recipe: Recipe, scene: States) -> tuple[Recipe, ...]:
        gathering = Gathering()
        found: list[Recipe] = []
        for member in self._others(scene):
            with gathering.catching(path=str(path)):
                other = path
                if path not in member.tree:  # it may have one that prints alike
                    other = find_leaf(member.text, member.source, str(path), field="with")
                theirs: Recipe = Stored(LeafRef(member.name, other), member.tree[other])
                if self.integers and is_integers(theirs.spec):
                    theirs = as_floats(theirs, other)
                check_fits(path, recipe.spec, member.text, theirs.spec)
                found.append(theirs)
        gathering.raise_if_any()
        return tuple(found)

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        after = super().rewrite(draft, scene)
        if after.leaves == draft.leaves:  # an optional edit that names nothing
            return after
        others = self._others(scene)
        averaged = [path for path in draft.leaves if self._is_averaged(path, draft, after)]
        return after.noting(
            members_note(others, self.weights, self.steps, scene),
            *copies_notes(others, self.steps, scene),
            *state_notes(averaged, self, others, draft, scene),
        )

    def _is_averaged(self, path: LeafPath, before: Draft, after: Draft) -> bool:
        """True for a leaf that this edit itself made a mean."""
        edits = after.leaves[path].edits
        return edits is not before.leaves[path].edits and isinstance(edits[-1].effect, Means)

    def _others(self, scene: States) -> list[Member]:
        named = (self.with_,) if isinstance(self.with_, str) else self.with_
        return others_of(named, self.steps, scene)

    def _check_weights(self, members: Sequence[str]) -> None:
        if not self.weights:
            return
        if len(self.weights) != len(members):
            raise PlanError(
                f"{len(self.weights)} weights for {len(members)} members",
                why=f"the members are {listed(members, MOST_NAMED)}",
                fix="give one weight for each member, or none for equal ones",
                field="weights",
            )
        is_finite = all(map(math.isfinite, self.weights))
        if not is_finite or math.fsum(_of_usual_size(self.weights)) == 0:
            raise PlanError(
                "the weights add up to 0" if is_finite else "the weights are not all finite",
                why="they are divided by their sum",
                fix="give weights whose sum is a number other than 0",
                field="weights",
            )

    @property
    def effect(self) -> Effect:
        return Means()


def _of_usual_size(weights: tuple[float, ...]) -> tuple[float, ...]:
    """The weights times a power of two, the largest between 1 and 2, equal ones as 1: no sum by them is beyond float64.

    >>> _of_usual_size((12.0, 4.0)), _of_usual_size((1e308, 1e308))
    ((1.5, 0.5), (1.0, 1.0))
    """
    if len({*weights}) == 1 and weights[0]:
        return (1.0,) * len(weights)
    _, exponent = math.frexp(max(map(abs, weights), default=1.0))
    return tuple(math.ldexp(weight, 1 - exponent) for weight in weights)


class WeightedMean(Kernel, frozen=True, tag="weighted_mean"):
    """The mean of its inputs by weights, or of equal ones; one input stands in memory at a time."""

    weights: tuple[float, ...] = ()
    keeps_inputs: ClassVar[bool] = False

    def _weights(self, at: Place) -> tuple[float, ...]:
        return _of_usual_size(self.weights) or (1.0,) * len(at.inputs)

    def begin(self, kit: Kit, at: Place) -> Any:
        return None

    def add(self, state: Any, number: int, block: Any, kit: Kit, at: Place) -> Any:
        return kit.add_scaled(state, block, self._weights(at)[number])

    def result(self, state: Any, kit: Kit, at: Place) -> Any:
        # divided once, at the end: the mean of equal members is exactly what each of them is
        weights, dtype = self._weights(at), at.output.dtype
        divisor = math.fsum(weights)
        smallest = min(abs(weight) for weight in weights if weight)
        if not may_lose(smallest / abs(divisor), dtype):
            return kit.quotient(state, divisor, dtype)
        mean = kit.apply(lambda: state / divisor)
        new = kit.cast(mean, dtype)
        fix = worded("cast the members to a wider dtype first, or leave the leaf out with {except}")
        kit.apply(lambda: refuse_lost(mean, new, at, fix=fix, least=0.0))
        return new
