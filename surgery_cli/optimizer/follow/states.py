"""What is known of the optimizer states of a checkpoint and its donors, and of an edit that slots follow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from surgery_cli.draft.effect import Effect
from surgery_cli.draft.expression import LeafRef, Made, Recipe
from surgery_cli.draft.leaf_digest import Manifest
from surgery_cli.draft.recipe import Draft
from surgery_cli.draft.source import Source
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec

if TYPE_CHECKING:  # help needs operations, and they need no survey to be listed
    from surgery_cli.optimizer.detect.survey import OptimizerSurvey


class States(Protocol):
    """The sources of a draft, and what their optimizer states are; implemented by ``resolution``."""

    @property
    def seed(self) -> int: ...
    @property
    def source(self) -> Source:
        """The checkpoint that is edited."""

    def open(self, text: str) -> tuple[str, Source]:
        """A source by its name in the plan or by its path: the name under which the draft knows it, and itself."""

    def manifest(self, text: str) -> Manifest:
        """The digests in a file that a rule names; raises PlanError if it is no manifest, or cannot be read."""

    def survey_of(self, name: str, *, tell: bool = False) -> OptimizerSurvey:
        """What the optimizer state of a source is, by the name under which the draft knows it; found once.

        ``tell``: values may be read, where only they tell which optimizer keeps a state.
        """

    def survey_of_draft(self, draft: Draft) -> OptimizerSurvey:
        """What the optimizer state of a draft is by metadata alone, whatever is known of its source."""

    def number(self, ref: LeafRef) -> float | None:
        """The value of a stored leaf with one element, such as a step count; None where it cannot be read."""

    def written(self, recipe: Recipe) -> tuple[float, ...] | None:
        """The elements of a small leaf as the run writes them, or as they are stored; None where nobody reads values.

        Raises:
            SurgeryError: what it is made of cannot be read, or its values must not be written.
        """

    def measured(self, part: Made) -> Any:
        """The value of a measurement, read and taken now: a NumPy array, for an edit whose shapes depend on it.

        Raises:
            SurgeryError: the leaves cannot be read or measured, or there is no memory for that.
        """


class Edit(Protocol):
    """An edit of params, as far as their slots are concerned: an operation, mostly."""

    @property
    def name(self) -> str: ...
    @property
    def optimizer(self) -> str | None:
        """The policy that the edit itself says."""

    @property
    def effect(self) -> Effect:
        """What it does to a leaf."""

    def effect_on(self, recipe: Recipe, before: LeafSpec) -> Effect:
        """What it did to the leaf, which was like that before, of which it made this recipe."""

    def made(
        self, path: LeafPath, recipe: Recipe, scene: States, like: Recipe | None = None
    ) -> Recipe:
        """What it makes of another leaf that is like the param, of which it made ``like``."""
