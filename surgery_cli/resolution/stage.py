"""What edits may look at while they rewrite the draft, and which of their problems are news."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from surgery_cli.draft.check import Check
from surgery_cli.draft.effect import Takes
from surgery_cli.draft.expression import LeafRef, Made, Recipe
from surgery_cli.draft.leaf_digest import Manifest
from surgery_cli.draft.recipe import SOURCE, Draft
from surgery_cli.draft.source import Source, is_same_place
from surgery_cli.draft.user_function import UserFunction
from surgery_cli.errors import Gathering, PlanError, Problem, SurgeryError
from surgery_cli.operations.base import LeafOperation, Operation, ValueOperation
from surgery_cli.optimizer.detect.survey import OptimizerSurvey, survey
from surgery_cli.optimizer.follow import policies
from surgery_cli.optimizer.follow.mirroring import torn, torn_notes
from surgery_cli.optimizer.follow.named_slots import named_apart
from surgery_cli.optimizer.follow.origins import Origins
from surgery_cli.optimizer.follow.provenance import after_values_from_elsewhere, came_from_elsewhere
from surgery_cli.resolution.arrivals import Arrivals
from surgery_cli.resolution.doubts import Doubts
from surgery_cli.resolution.inverse import Inverse
from surgery_cli.resolution.outcomes import said_of, with_outcome
from surgery_cli.resolution.selection import Consequence, NothingNamed, names_any, select
from surgery_cli.resolution.unchanged import idle_notes, is_unchanged
from surgery_cli.resolution.unread import (
    Values,
    by_metadata,
    no_file,
    no_function,
    nothing_measured,
)
from surgery_cli.tree.paths import LeafPath, Selection

if TYPE_CHECKING:
    from surgery_cli.planning import Plan, PolicyRule


def _stands(node: str | None, draft: Draft) -> bool:
    """True if something is left of a node of the source, or if it is none."""
    homes = (leaf.home for leaf in draft.leaves.values())
    return node is None or any(
        f"{home.path}/".startswith(f"{node}/") for home in homes if home and home.source == SOURCE
    )


def _placed(rule: PolicyRule, draft: Draft, stage: Stage) -> list[Check]:
    """What a rule of a policy states of a draft, with file and line; that it names nothing breaks it."""
    origin, breaches = rule.origin, tuple[Problem, ...]()
    try:
        checks = rule.assertion.checks(draft, stage)
    except NothingNamed as error:
        breaches = error.problems
        checks = [Check(0, stated, 0) for stated in rule.assertion.rules]
    except SurgeryError as error:
        error.problems = tuple(origin.located(problem) for problem in error.problems)
        raise
    return [
        msgspec.structs.replace(
            check,
            policy=rule.policy,
            file=origin.file,
            line=origin.line(check.rule.name),
            breaches=tuple(origin.located(each) for each in breaches or check.breaches),
        )
        for check in checks
    ]


class Stage:
    """What edits may look at while they rewrite the draft: selections, donors, settings (a ``Scene``)."""

    def __init__(self, plan: Plan, source: Source, open_source: Callable[[str], Source]) -> None:
        self.source = source
        self._plan = plan
        self._open_source = open_source
        self._opened: dict[str, tuple[str, Source] | None] = {}
        self._asked: set[Problem] = set()
        self.inverse = Inverse()
        self.survey: OptimizerSurvey | None = None
        self.survey_told: Callable[[Source], OptimizerSurvey] = by_metadata
        self.read_number: Callable[[Source, LeafPath], float | None] = lambda *_: None
        self.function: Callable[[str], UserFunction] = no_function
        self.read_file: Callable[[str], bytes] = no_file
        self.manifest: Callable[[str], Manifest] = no_file
        self.measure: Callable[[Made, Callable[[str], Source]], Any] = nothing_measured
        self.read_values: Values = lambda *_: None
        self._surveys: dict[tuple[str, bool], OptimizerSurvey] = {}
        self._of_draft: tuple[Draft, OptimizerSurvey] | None = None
        self.arrivals = Arrivals(plan)
        self._named: Selection | None = None
        self._doubts = Doubts()

    @property
    def seed(self) -> int:
        return self._plan.seed or 0

    @property
    def fingerprints(self) -> dict[str, str]:
        """The fingerprint of every donor that was opened, by its name."""
        return {name: donor.fingerprint for name, donor in filter(None, self._opened.values())}

    def select(self, edit: Operation, draft: Draft) -> Selection:
        try:
            selected = select(edit, draft)
        except NothingNamed as error:
            if news := tuple(self._doubts.news(error, edit, draft)):
                error.problems = news
                raise
            selected = select(msgspec.structs.replace(edit, optional=True, expect=None), draft)
            if not selected:
                raise Consequence(error.problems[0]) from None
        if not edit.follows_nothing:
            self.settle(selected, draft)
        self._named = edit.narrowed(selected, draft)
        return self._named

    def name(self, leaves: Iterable[LeafPath]) -> None:
        self._named = Selection(leaves, {})

    def ended(self, draft: Draft) -> Draft:
        """The draft after its last edit; twins that came are laid out as their params, too. Raises as `told_apart`."""
        if self._plan.reshard is not None:
            draft = self.arrivals.surveyed(draft, self, self.survey)
        return self.arrivals.told_apart(draft, self.survey)

    def settle(self, params: Iterable[LeafPath], draft: Draft) -> None:
        """Raise the questions about the optimizer state that an edit of these leaves needs answered, each once."""
        came = self.arrivals.questions
        if self.survey is None or not (self.survey.open_questions or came):
            return
        edited = list(params)
        homes = (draft.leaves[path].home for path in edited)
        stored = [home.path for home in homes if home and home.source == SOURCE]
        problems = [one for one in self.survey.questions_about(stored) if _stands(one.path, draft)]
        problems += (one.problem for one in came if one.is_about(edited))
        if problems:
            new = [problem for problem in problems if problem not in self._asked]
            self._asked.update(new)
            raise PlanError.of(new) if new else Consequence.of(problems)

    def open(self, text: str) -> tuple[str, Source]:
        address = str(self._plan.sources.get(text, text))
        if address not in self._opened:
            self._opened[address] = None
            self._opened[address] = (text, self._open_source(address))
        opened = self._opened[address]
        if opened is None:
            # the same words each time: an edit may ask for every leaf, and gathers what it hears
            consequence = Consequence(f"'{text}' could not be opened")
            self._doubts.know(consequence.problems[0].what)
            raise consequence
        return opened

    def survey_of(self, name: str, *, tell: bool = False) -> OptimizerSurvey:
        if (name, tell) not in self._surveys:
            make, source = self.survey_told if tell else by_metadata, self._source(name)
            # what is said of the checkpoint that is edited is said of it under another name, too
            is_own = name != SOURCE and is_same_place(source, self.source)
            known = self.survey if is_own and not tell else None
            self._surveys[name, tell] = known or make(self.source if is_own else source)
        return self._surveys[name, tell]

    def survey_of_draft(self, draft: Draft) -> OptimizerSurvey:
        if self._of_draft is None or self._of_draft[0] is not draft:
            self._of_draft = (draft, survey(draft.tree, params=self._plan.params))
        return self._of_draft[1]

    def measured(self, part: Made) -> Any:
        return self.measure(part, self._source)

    def written(self, recipe: Recipe) -> tuple[float, ...] | None:
        return self.read_values(recipe, self._source)

    def number(self, ref: LeafRef) -> float | None:
        return self.read_number(self._source(ref.source), ref.path)

    def _source(self, name: str) -> Source:
        return self.source if name == SOURCE else self.open(name)[1]

    def policy(self, edit: Operation) -> str | None:
        return edit.optimizer or self._plan.optimizer

    def carried(
        self,
        draft: Draft,
        edit: ValueOperation,
        edited: Sequence[LeafPath],
        before: Draft,
        origins: Origins = MappingProxyType({}),
    ) -> Draft:
        if edit.follows_nothing:
            return draft
        policy = self.policy(edit)
        after = policies.carry_values(draft, edit, edited, before, policy, self, origins)
        if not after.slots:
            return after
        if edit.twins == "named":
            after = after.noting(*named_apart(edit.effect, edited, before, after))
        return after_values_from_elsewhere(after, edit.effect, edited, self)

    def edited_as_named(
        self, draft: Draft, edit: Operation, index: int, gathering: Gathering
    ) -> Draft:
        """The draft after the edit of what is there; what is wrong with the edit is gathered.

        A pattern that names nothing does not keep the others from their edit, so that later edits miss no more than is
        missing.
        """
        with gathering.catching():
            try:
                draft = self.edited(draft, edit, index)
            except NothingNamed:
                what_is_there = msgspec.structs.replace(edit, optional=True, expect=None)
                is_told = edit.writes and not edit.edits_the_rest
                if is_told and names_any(what_is_there, draft):
                    with gathering.catching():
                        draft = self.edited(draft, what_is_there, index)
                raise
        return draft

    def edited(self, draft: Draft, edit: Operation, index: int) -> Draft:
        """The draft after the edit; the draft itself if only consequences of earlier problems stand in the way.

        Raises:
            SurgeryError: what is wrong with the edit, with its file and line.
        """
        self._named = None
        is_read = False
        try:
            edit.check_values()
            edit = edit.settled(self.read_file)
            is_read = True
            draft = self.arrivals.surveyed(draft, self, self.survey)
            after = edit.rewrite(draft, self)
            if after.items.front != draft.items.front:
                draft = draft.behind(after.items.front)
            old = draft.leaves
            changed = {p: r for p, r in after.leaves.items() if old.get(p) is not r}
            found = torn(draft, after, changed)
            if found and not edit.follows_nothing and edit.twins != "named":
                raise PlanError.of(each.problem(edit.if_torn) for each in found)
            after = after.noting(*torn_notes(found))
            if found or not isinstance(edit, LeafOperation):
                self.arrivals.see(draft, after, changed, edit, index)
            if not isinstance(edit, LeafOperation):
                came = came_from_elsewhere(changed, after)
                after = after_values_from_elsewhere(after, Takes(), came, self)
            after = self._with_places(after, len(draft.checks), index)
            after = after.noting(*said_of(edit.note, self._named))
            if is_unchanged(draft, after, changed):
                number = index + 1 if len(self._plan.edits) > 1 else None
                changed, after = {}, after.noting(*idle_notes(edit, self._named, number))
            self.inverse.see(edit, draft, after)
            return with_outcome(after, draft, changed, self._named, edit.effect)
        except SurgeryError as error:
            error.problems = tuple(p for p in error.problems if self._doubts.is_news(p))
            is_of_draft = is_read and type(error) is PlanError
            is_news = bool(error.problems)
            is_news &= not (is_of_draft and self._doubts.may_explain(edit, self._named))
            self._doubts.failed(edit, error if is_news else None, draft, self._named)
            if isinstance(error, Consequence) or not is_news:
                return draft
            if index < len(self._plan.origins):
                origin = self._plan.origins[index]
                error.problems = tuple(origin.located(problem) for problem in error.problems)
            raise

    def checked(self, draft: Draft) -> Draft:
        """The draft with the rules of the plan's policy, which are about all of it as it will be.

        Raises:
            SurgeryError: what is wrong with the policy, with its file and line.
        """
        gathering, checks = Gathering(), []
        for rule in self._plan.check:
            with gathering.catching():
                checks += _placed(rule, draft, self)
        gathering.raise_if_any()
        return draft.replaced(checks=(*draft.checks, *checks)) if checks else draft

    def _with_places(self, draft: Draft, known: int, index: int) -> Draft:
        """The draft with file and line of the checks that its last edit brought, after the ``known`` ones."""
        if len(draft.checks) == known or index >= len(self._plan.origins):
            return draft
        origin = self._plan.origins[index]
        new = (
            msgspec.structs.replace(check, file=origin.file, line=origin.line(check.rule.name))
            for check in draft.checks[known:]
        )
        return draft.replaced(checks=(*draft.checks[:known], *new))
