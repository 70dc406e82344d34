"""Operations that make a leaf the mean of itself and its like in other checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from surgery_cli.draft.effect import Effect, Means
from surgery_cli.draft.expression import Made, Recipe, made
from surgery_cli.draft.kernel import Kernel
from surgery_cli.draft.kernels.weighted_sum import WeightedMean, of_usual_size
from surgery_cli.draft.recipe import Draft, is_numeric
from surgery_cli.operations.averaged_state import state_notes
from surgery_cli.operations.base import Scene
from surgery_cli.operations.counterparts import counterparts, meet_all
from surgery_cli.operations.layered import Layered, all_numbers, by_layer
from surgery_cli.operations.members import (
    Member,
    copies_notes,
    left_out_notes,
    members_note,
    refuse_lacking,
    refuse_repeated,
)
from surgery_cli.operations.nonnegative import are_of_one_sign, refuse_negative
from surgery_cli.operations.numeric import Numeric
from surgery_cli.operations.partners import Missing, Partnered
from surgery_cli.operations.step_ranges import ranges_in
from surgery_cli.optimizer.follow.states import States
from surgery_cli.tree.paths import LeafPath, Selection
from surgery_cli.tree.specs import LeafSpec


class Averaging(Partnered, Numeric, kw_only=True, frozen=True):
    """A mean over checkpoints. Subclasses say who the members are, and their weights."""

    missing: Missing = "error"

    selects_everything_without_at: ClassVar[bool] = True

    @property
    def steps(self) -> str:
        """The steps of a run that are members, as the edit says them; empty if it names checkpoints."""
        raise NotImplementedError

    def others(self, scene: States) -> list[Member]:
        """All members but the source, in the order of their weights."""
        raise NotImplementedError

    def member_weights(self, scene: States) -> tuple[Layered, ...]:
        """One for each member, the source first, several where layers differ; none for equal ones.

        Raises:
            PlanError: they do not fit the members.
        """
        raise NotImplementedError

    def layer_weights(
        self, named: Selection, scene: States
    ) -> Callable[[LeafPath], tuple[float, ...]]:
        """The weights of all members for each leaf that the edit names."""
        each = [by_layer(weight, named, "weights") for weight in self.member_weights(scene)]
        return lambda path: tuple(of(path) for of in each)

    def selectable(self, spec: LeafSpec) -> bool:
        if self.patterns:
            return super().selectable(spec)
        return is_numeric(spec)

    def check_values(self) -> None:
        super().check_values()
        ranges_in(self.steps)

    def check(self, named: Sequence[LeafPath], draft: Draft, scene: Scene) -> None:
        others = self.others(scene)
        is_edited = any(not draft.is_untouched(path) for path in named)
        refuse_repeated(others, scene, is_edited=is_edited)
        slots = [slot.path for path in named for slot in draft.slots_of.get(path, ())]
        follow = self.twins != "literal" and scene.policy(self) == "transform"
        if not are_of_one_sign(of_usual_size(all_numbers(self.member_weights(scene)))):
            refuse_negative(draft, [*named, *slots] if follow else named, "weights below 0")
        refuse_lacking(named, others, draft)

    def meet(self, path: LeafPath, named: Selection, draft: Draft, scene: Scene) -> None:
        meet_all(path, self.others(scene))

    def maker(
        self, named: Selection, draft: Draft, scene: Scene
    ) -> Callable[[LeafPath, Recipe], Recipe]:
        weights = self.layer_weights(named, scene)
        return lambda path, recipe: self._mean(path, recipe, WeightedMean(weights(path)), scene)

    def made(
        self, path: LeafPath, recipe: Recipe, scene: States, like: Recipe | None = None
    ) -> Recipe:
        assert isinstance(like, Made)
        return self._mean(path, recipe, like.kernel, scene)

    def _mean(self, path: LeafPath, recipe: Recipe, kernel: Kernel, scene: States) -> Recipe:
        after = self.output(recipe.spec)
        others = counterparts(path, recipe.spec, self.others(scene), integers=self.integers)
        return made(kernel, (recipe, *others), after, path)

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        after = super().rewrite(draft, scene)
        if after.leaves == draft.leaves:  # an optional edit that names nothing
            return after
        others = self.others(scene)
        averaged = [path for path in draft.leaves if self._is_averaged(path, draft, after)]
        return after.noting(
            members_note(others, self.member_weights(scene), self.steps, scene),
            *copies_notes(others, self.steps, scene),
            *left_out_notes(others, self, draft),
            *state_notes(averaged, self, others, draft, scene),
        )

    def _is_averaged(self, path: LeafPath, before: Draft, after: Draft) -> bool:
        """True for a leaf that this edit itself made a mean."""
        edits = after.leaves[path].edits
        return edits is not before.leaves[path].edits and isinstance(edits[-1].effect, Means)

    @property
    def effect(self) -> Effect:
        return Means()
