"""Leaves that edits of a plan bring: copies, and trees of other checkpoints. They are surveyed before the next edit."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from surgery_cli.draft.recipe import SOURCE, Draft, Output
from surgery_cli.errors import PlanError
from surgery_cli.optimizer.detect.survey import OptimizerSurvey, Question, survey
from surgery_cli.optimizer.follow.provenance import as_told
from surgery_cli.optimizer.follow.states import States
from surgery_cli.tree.paths import LeafPath

if TYPE_CHECKING:
    from surgery_cli.plan import Plan


class Arrivals:
    """What came with earlier edits: a second plan would find it, so this one looks at it, too."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._new: set[LeafPath] = set()
        self.questions: tuple[Question, ...] = ()
        """What only the user can say of states that came."""

    def see(self, before: Draft, after: Draft, changed: Mapping[LeafPath, Output]) -> None:
        """Remember what an edit brought, or left empty, that is no slot of a param, nor a param with slots."""
        is_more = len(after.leaves) > len(before.leaves)
        for path, leaf in changed.items():
            came = is_more or leaf.home is None or leaf.home.source != SOURCE
            if came and not (path in before.leaves or path in after.slots):
                self._new.add(path)
        self._new.difference_update(after.slots_of if self._new else ())

    def surveyed(self, draft: Draft, states: States, known: OptimizerSurvey | None) -> Draft:
        """The draft with the slots and clocks that a survey of it as it stands finds beside those that it knows.

        ``known`` is the survey of the source.
        """
        if not self._new:
            return draft
        found = self._survey(draft)
        new, self._new = self._new, set()
        if found is None:
            return draft
        self.questions += tuple(one for one in found.open_questions if _is_about(one, new))
        more = {
            path: as_told(slot, draft, states, known)
            for path, slot in found.slots.items()
            if path not in draft.slots
        }
        return draft.replaced(
            slots={**draft.slots, **more},
            clocks={**found.clocks, **draft.clocks},
            running={**found.running, **draft.running},
        )

    def _survey(self, draft: Draft) -> OptimizerSurvey | None:
        """What metadata tell of the draft; what the plan says of places may be gone by now."""
        roots = {slot.root for slot in draft.slots.values() if slot.in_optimizer}
        plan = self._plan
        params = str(*roots) if plan.params and len(roots) == 1 else plan.params
        for kind, slots in ((plan.optimizer_kind, plan.slots), (None, plan.slots), (None, None)):
            try:
                return survey(draft.tree, params=params, kind=kind, slots=slots)
            except PlanError:
                continue
        return None


def _is_about(question: Question, new: Collection[LeafPath]) -> bool:
    """True if the state in question is new."""
    node = question.problem.path
    return node is not None and any(f"{path}/".startswith(f"{node}/") for path in new)
