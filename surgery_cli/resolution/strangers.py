"""Optimizer state that an edit of the plan put in: it was not there when the state was surveyed."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from surgery_cli.draft.recipe import Draft, Output
from surgery_cli.errors import PlanError
from surgery_cli.operations.base import Operation
from surgery_cli.optimizer.detect.survey import survey
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import TreeSpec
from surgery_cli.words.advice import worded

if TYPE_CHECKING:
    from surgery_cli.plan import Plan


class Strangers:
    """The leaves that came with earlier edits and are no known slots."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._arrived: dict[int, Output] = {}
        """By identity: places change."""

    def see(self, before: Draft, after: Draft) -> None:
        """Remember what an edit brought."""
        if len(after.leaves) <= len(before.leaves):
            return
        known = {id(recipe) for recipe in before.leaves.values()}
        for path, recipe in after.leaves.items():
            if id(recipe) not in known and path not in after.slots:
                self._arrived[id(recipe)] = recipe

    def refuse_followers(
        self, edit: Operation, edited: Collection[LeafPath], before: Draft
    ) -> None:
        """Raise if a plan of its own would carry what this one does not know: one plan must do what two plans do.

        Raises:
            PlanError: optimizer state of an edited param came with an earlier edit.
        """
        if not self._arrived:
            return
        tree = TreeSpec({path: recipe.spec for path, recipe in before.leaves.items()})
        try:
            found = survey(tree, slots=self._plan.slots)
        except PlanError:  # what `slots` names may be gone by now
            return
        named = set(edited)
        for slot in found.slots.values():
            if slot.param not in named or slot.path in named or not slot.in_optimizer:
                continue
            is_new = id(before.leaves[slot.path]) in self._arrived
            if is_new and slot.path not in before.slots and slot.relation not in ("hole", "one"):
                raise PlanError(
                    f"'{slot.path}' would not follow '{edit.name}' on '{slot.param}'",
                    why="it came with an earlier edit of this plan, and what it is to the optimizer is told on disk",
                    fix=worded(
                        "run this edit as a plan of its own on the result, or say {optimizer: keep}"
                    ),
                    path=str(slot.path),
                    field="optimizer",
                )
