"""Means over the steps of the run that is edited."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import PlanError
from surgery_cli.operations.averaging import Averaging
from surgery_cli.operations.base import Scene
from surgery_cli.operations.members import Member, others_of
from surgery_cli.operations.nonnegative import holds_variances
from surgery_cli.operations.step_ranges import PATTERN, named_steps
from surgery_cli.optimizer.follow.states import States
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.advice import worded
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage

_SHOWN = 2


class OverSteps(Averaging, kw_only=True, frozen=True):
    """A mean over steps of the own run, of which the source is one: the newest, unless it is named as `RUN@N`."""

    steps: Annotated[
        str,
        Meta(
            pattern=PATTERN.replace(")?$", ")$"),
            examples=["100..500"],
            description="`A..B`: the steps from A to B of the run; none of them may be missing. Or `A,B,C`. The source"
            " is one of them. `last:5` are the five of the highest numbers in the run, also those after the source,"
            " which must be one of the five.",
        ),
    ]

    def others(self, scene: States) -> list[Member]:
        return others_of((), self.steps, scene)

    def numbers(self, scene: States) -> list[int]:
        """The steps of all members, in the order of the weights: the source first."""
        source = scene.source
        assert source.step is not None
        return [source.step, *(number for number in self._named(scene) if number != source.step)]

    def _named(self, scene: States) -> list[int]:
        return named_steps(self.steps, scene.source.steps, scene.source.step_formats)

    def check(self, named: Sequence[LeafPath], draft: Draft, scene: Scene) -> None:
        source = scene.source
        if source.step is None or not source.steps:
            raise PlanError(
                f"'{source.address}' is not a run of steps",
                why=worded("{steps} takes steps that stand side by side"),
                fix="name the directory that holds them, or use `average` for checkpoints that stand elsewhere",
                field="steps",
            )
        inside = self._named(scene)
        if source.step not in inside:
            run = source.address.rpartition("@")[0] or source.address
            raise PlanError(
                f"step {source.step}, the source, is none of {self.steps}",
                why="the result goes on from one of them, and everything else in it is that step's",
                fix=f"edit the last of them: '{run}@{inside[-1]}'",
                field="steps",
            )
        super().check(named, draft, scene)

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        after = super().rewrite(draft, scene)
        statistics = [path for path in draft.leaves if holds_variances(path, draft)]
        if after.leaves == draft.leaves or not statistics:
            return after
        said = "batch statistics are those of other weights than the mean's: gather them anew, by passes over the data"
        return after.noting(
            Consequence(DocsPage.SWA, f"{said} ({quoted(map(str, statistics), _SHOWN)})")
        )
