"""What edits of places make of the tree for whoever opens it next: a second plan, and the next edit of this one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from surgery_cli.draft.recipe import SOURCE, Draft, Output
from surgery_cli.draft.slots import Slot
from surgery_cli.errors import PlanError, Problem
from surgery_cli.operations.base import Operation
from surgery_cli.optimizer.detect.params_root import is_optimizer_name
from surgery_cli.optimizer.detect.survey import OptimizerSurvey, Question, survey
from surgery_cli.optimizer.follow.provenance import as_told
from surgery_cli.optimizer.follow.states import States
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.advice import worded
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage

if TYPE_CHECKING:
    from surgery_cli.planning import Plan


class Arrivals:
    """Leaves that came, and states that were rebuilt: a second plan would look at them, so this one does, too."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._new: set[LeafPath] = set()
        self._is_rebuilt = False
        self._rebuilt_by: int | None = None
        self._is_surveyed = self._is_meant = self._is_told = False
        self._open: frozenset[str] = frozenset()
        """The states that nothing tells apart any more, as of the last survey, by where they stood in the source."""
        self._meant: frozenset[str] = frozenset()
        """Those of them that became so by edits which name slots as they are."""
        self.questions: tuple[Question, ...] = ()
        """What only the user can say of states that came, or are no longer what they were."""

    def see(
        self,
        before: Draft,
        after: Draft,
        changed: Mapping[LeafPath, Output],
        edit: Operation,
        index: int,
    ) -> None:
        """Remember what an edit brought, or left empty, that is no slot of a param, nor a param with slots.

        And whether it rebuilt states; ``index`` is the edit's place in the plan.
        """
        if after.leaves is before.leaves and after.slots is before.slots:
            return
        is_more = len(after.leaves) > len(before.leaves)
        for path, leaf in changed.items():
            came = is_more or leaf.home is None or leaf.home.source != SOURCE
            if came and not (path in before.leaves or path in after.slots):
                self._new.add(path)
        self._new.difference_update(after.slots_of if self._new else ())
        is_meant = edit.follows_nothing or edit.twins == "named"
        if is_meant or _is_rebuilt(before, after, changed):
            self._is_surveyed = self._is_rebuilt = True
            self._is_meant = is_meant
            self._rebuilt_by = self._rebuilt_by if is_meant else index
            self._is_told |= edit.twins == "named"

    def surveyed(self, draft: Draft, states: States, known: OptimizerSurvey | None) -> Draft:
        """The draft with the slots and clocks that a survey of it as it stands finds beside those that it knows.

        ``known`` is the survey of the source.
        """
        if not (self._new or self._is_rebuilt):
            return draft
        found = self._survey(draft, known)
        new, self._new = self._new, set()
        is_rebuilt, self._is_rebuilt = self._is_rebuilt, False
        if found is None:
            return draft
        asked = [one for one in found.open_questions if _is_about(one, new)]
        if is_rebuilt:
            rebuilt = self._weighed(draft, _new_questions(draft, found, known))
            asked += [one for one, is_meant in rebuilt if not (is_meant and self._is_told)]
        self.questions += tuple(dict.fromkeys(asked))
        more = {
            path: as_told(slot, draft, states, known)
            for path, slot in found.slots.items()
            if path not in draft.slots and not _is_misread(slot, draft, known)
        }
        held = _as_found(draft, found, known) if is_rebuilt else draft.slots
        return draft.replaced(
            slots={**held, **more},
            clocks={**found.clocks, **draft.clocks},
            running={**found.running, **draft.running},
        )

    def told_apart(self, draft: Draft, known: OptimizerSurvey | None) -> Draft:
        """The draft, in which a second plan finds every state that was rebuilt to be what it was.

        Where an edit names slots as they are, what is not found is noted.

        Raises:
            PlanError: it does not.
        """
        draft = draft.noting(*self._misread(draft, known))
        found = self._survey(draft, known) if self._is_surveyed else None
        if found is None:
            return draft
        questions = self._weighed(draft, _new_questions(draft, found, known))
        refused = [_refusal(one) for one, is_meant in questions if not is_meant]
        if refused:
            index = self._rebuilt_by
            if index is not None and index < len(self._plan.origins):
                refused = [self._plan.origins[index].located(one) for one in refused]
            raise PlanError.of(refused)
        said = "later edits of these params need `slots:` for it"
        return draft.noting(
            *(Consequence(DocsPage.OPTIMIZERS, f"{_untold(one)}: {said}") for one, _ in questions)
        )

    def _misread(self, draft: Draft, known: OptimizerSurvey | None) -> Iterator[Consequence]:
        """What a second plan would take for params, or copies of them: slots that stand outside of their state."""
        if not any(_slot_at_home(path, draft, known, is_moved=True) for path in draft.leaves):
            return
        found = self._survey(draft, known)
        misread: dict[LeafPath, tuple[Slot, str]] = {}
        for slot in found.slots.values() if found else ():
            own = _slot_at_home(slot.path, draft, known)
            param = slot.param if slot.in_optimizer and slot.param in draft.leaves else None
            is_elsewhere = (
                own is not None and own.node != slot.node
            )  # of others, the record keeps a word
            if own is not None and is_elsewhere and not slot.in_optimizer:
                misread.setdefault(slot.node, (own, f"a copy of '{slot.root}', and edit it so"))
            elif param and (own := _slot_at_home(param, draft, known)) is not None:
                said = f"the params of '{slot.node}', which does not follow its own then"
                misread.setdefault(slot.root, (own, said))
        for node, (own, said) in misread.items():
            yield Consequence(
                DocsPage.OPTIMIZERS,
                f"'{node}' has the values of '{own.node}', but later plans take it for {said}: put it back into a state"
                " first",
            )

    def _weighed(self, draft: Draft, questions: list[Question]) -> list[tuple[Question, bool]]:
        """Each question, and whether it is meant: that is who raises one by naming slots as they are."""
        homes = [_home_of(one, draft) for one in questions]
        now = frozenset(homes)
        self._meant &= now
        if self._is_meant:
            self._meant |= now - self._open
        self._open, self._is_meant = now, False
        return [(one, home in self._meant) for one, home in zip(questions, homes, strict=True)]

    def _survey(self, draft: Draft, known: OptimizerSurvey | None) -> OptimizerSurvey | None:
        """What metadata tell of the draft; what the plan says of places may be gone by now."""
        roots = {slot.root for slot in draft.slots.values() if slot.in_optimizer}
        plan = self._plan
        params = plan.params
        if len(roots) == 1 and (params or not roots.issubset(known.params_roots if known else ())):
            params = str(*roots) or params
        for kind, slots in ((plan.optimizer_kind, plan.slots), (None, plan.slots), (None, None)):
            try:
                return survey(draft.tree, params=params, kind=kind, slots=slots)
            except PlanError:
                continue
        return None


def _slot_at_home(
    path: LeafPath, draft: Draft, known: OptimizerSurvey | None, *, is_moved: bool = False
) -> Slot | None:
    """What the leaf was in the optimizer state of the source, if it was no copy of a param there."""
    home = draft.leaves[path].home
    if known is None or home is None or home.source != SOURCE:
        return None
    slot = known.slots.get(home.path)
    if slot is None or not slot.in_optimizer or slot.is_params_like or slot.relation == "hole":
        return None
    return None if is_moved and draft.standing(home.path) == path else slot


def _is_misread(slot: Slot, draft: Draft, known: OptimizerSurvey | None) -> bool:
    """True for what is no copy of a param, whatever it looks like where it stands by now."""
    return not slot.in_optimizer and _slot_at_home(slot.path, draft, known) is not None


def _is_rebuilt(before: Draft, after: Draft, changed: Mapping[LeafPath, Output]) -> bool:
    """True if a state or its params stand elsewhere as a whole, or one gained or lost what the other has nothing for.

    Params that move, come or go below their root, with their slots, leave their states what they were.
    """
    places = _places(before)
    if places != _places(after):
        return True
    gone = before.leaves.keys() - after.leaves.keys()
    slots = [after.slots[path] for path in changed if path in after.slots]
    slots += [before.slots[path] for path in gone if path in before.slots]
    known = {path for slot in slots for path in (slot.path, slot.param)}
    trees = {tree for node, root, _ in places for tree in (node.parent or node, root)}
    return any(
        any(map(is_optimizer_name, path)) or any(path.is_below(tree) for tree in trees)
        for path in (*changed, *gone)
        if path not in known
    )


def _places(draft: Draft) -> set[tuple[LeafPath, LeafPath, str]]:
    """The nodes that mirror params, each with the root that it mirrors and the name of the slots."""
    slots = (slot for slot in draft.slots.values() if slot.in_optimizer)
    fields = {(id(s.node), id(s.root), s.name): (s.node, s.root, s.name) for s in slots}
    return set(fields.values())


def _meaning(slot: Slot) -> tuple[object, ...]:
    return *slot.meaning, slot.fresh, slot.start


def _new_questions(
    draft: Draft, found: OptimizerSurvey, known: OptimizerSurvey | None
) -> list[Question]:
    """What a survey of the draft asks of leaves of the source of which nothing was open there."""
    open_before = known.open_questions if known else ()
    told = {path for path, slot in draft.slots.items() if slot.is_told}
    settled = [
        path
        for path, leaf in draft.leaves.items()
        if leaf.home is not None
        and leaf.home.source == SOURCE
        and path not in told
        and not any(_is_about(one, (leaf.home.path,)) for one in open_before)
    ]
    return [one for one in found.open_questions if _is_about(one, settled)]


def _as_found(
    draft: Draft, found: OptimizerSurvey, known: OptimizerSurvey | None
) -> dict[LeafPath, Slot]:
    """The slots of a draft whose states were rebuilt: those of another name or param mean what they mean by now."""
    held: dict[LeafPath, Slot] = {}
    for path, slot in draft.slots.items():
        now = found.slots.get(path)
        is_known = slot.is_told or (now is not None and _is_misread(now, draft, known))
        if not slot.in_optimizer or slot.relation == "hole" or is_known:
            held[path] = slot
        elif now is not None:
            is_same = (slot.name, slot.param, slot.relation) == (now.name, now.param, now.relation)
            is_told = slot.known_by != "disk" or _meaning(slot) == _meaning(now)
            held[path] = slot if is_same and is_told else now
        elif any(_is_about(one, (path,)) for one in found.open_questions):
            held[path] = slot
    return held


def _is_about(question: Question, paths: Collection[LeafPath]) -> bool:
    """True if some of the paths stand in the state in question."""
    node = question.problem.path
    return node is not None and any(f"{path}/".startswith(f"{node}/") for path in paths)


def _home_of(question: Question, draft: Draft) -> str:
    """Where the first leaf of the state in question stood in the source, as the state itself may move on."""
    homes = [
        leaf.home.path
        for path, leaf in draft.leaves.items()
        if leaf.home is not None and leaf.home.source == SOURCE and _is_about(question, (path,))
    ]
    return str(min(homes, key=str) if homes else question.problem.path)


def _untold(question: Question) -> str:
    return f"nothing would tell any more which params '{question.problem.path}' belongs to"


def _refusal(question: Question) -> Problem:
    return msgspec.structs.replace(
        question.problem,
        what=_untold(question),
        fix=worded(
            "choose another place, or take '{}' away or along as a whole; with {twins: named} it is done and noted",
            question.problem.path or "",
        ),
    )
