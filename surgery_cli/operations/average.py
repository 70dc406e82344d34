"""Average leaves over several checkpoints."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from surgery_cli.draft.kernels.weighted_sum import of_usual_size
from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import PlanError
from surgery_cli.operations.averaging import Averaging
from surgery_cli.operations.base import Scene
from surgery_cli.operations.layered import Layered, all_numbers, numbers_of
from surgery_cli.operations.members import (
    MOST_NAMED,
    Member,
    member_names,
    others_of,
    refuse_unclear,
)
from surgery_cli.operations.step_ranges import PATTERN as STEPS
from surgery_cli.optimizer.follow.states import States
from surgery_cli.tree.paths import LeafPath, Selection
from surgery_cli.words.lists import listed


class Average(Averaging, tag="average", kw_only=True, frozen=True):
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
            description="`A..B`: the steps from A to B of the run in `with`, or else of this run, are members"
            " beside the step that is edited, which is one wherever it lies; none of them may be missing. Or"
            " `A,B,C`. `last:5` are the five of the highest numbers, and the step that is edited is one of the"
            " five if it is among them.",
        ),
    ] = ""
    weights: Annotated[
        tuple[Layered, ...],
        Meta(
            description="One for each member, this checkpoint first, then in the order of `with` or of the steps;"
            " they are divided by their sum. A list in place of a number goes over the layers."
        ),
    ] = ()

    example: ClassVar[str] = "- op: average\n  at: params\n  with: runs/other\n  weights: [3, 1]\n"
    path_fields: ClassVar[tuple[str, ...]] = ("with",)

    def others(self, scene: States) -> list[Member]:
        return others_of(self._named, self.steps, scene)

    @property
    def _named(self) -> tuple[str, ...]:
        return (self.with_,) if isinstance(self.with_, str) else self.with_

    def member_weights(self, scene: States) -> tuple[Layered, ...]:
        return self.weights

    def check_values(self) -> None:
        super().check_values()
        refuse_unclear(self._named, self.steps)
        if not all(map(math.isfinite, all_numbers(self.weights))):
            raise _without_sum("the weights are not all finite")
        if self.weights and all(len(numbers_of(weight)) == 1 for weight in self.weights):
            _check_sum(all_numbers(self.weights))
        if not self.steps:
            self._check_count(["the source", *map(repr, self._named)])

    def check(self, named: Sequence[LeafPath], draft: Draft, scene: Scene) -> None:
        self._check_count(member_names(self.others(scene), self.steps, scene))
        super().check(named, draft, scene)

    def _check_count(self, members: Sequence[str]) -> None:
        if self.weights and len(self.weights) != len(members):
            raise PlanError(
                f"{len(self.weights)} weights for {len(members)} members",
                why=f"the members are {listed(members, MOST_NAMED)}",
                fix="give one weight for each member, or none for equal ones",
                field="weights",
            )

    def layer_weights(
        self, named: Selection, scene: States
    ) -> Callable[[LeafPath], tuple[float, ...]]:
        weights_of = super().layer_weights(named, scene)
        for path in named if self.weights else ():
            _check_sum(weights_of(path))
        return weights_of


def _check_sum(weights: tuple[float, ...]) -> None:
    if math.fsum(of_usual_size(weights)) == 0:
        raise _without_sum("the weights add up to 0")


def _without_sum(what: str) -> PlanError:
    return PlanError(
        what,
        why="they are divided by their sum",
        fix="give weights whose sum is a number other than 0",
        field="weights",
    )
