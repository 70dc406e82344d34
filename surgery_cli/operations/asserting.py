"""Edits that say what must hold of leaves where they stand among the others, and change nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from types import MappingProxyType
from typing import Any, ClassVar

import msgspec

from surgery_cli.draft.check import Check, CheckedLeaf
from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import Gathering, MissingError, PlanError, Problem, raise_all
from surgery_cli.operations.base import Operation, Scene
from surgery_cli.operations.named_elsewhere import named_elsewhere
from surgery_cli.rules.contract import Named, Rule
from surgery_cli.tree.paths import PathPattern
from surgery_cli.tree.specs import LeafKind, LeafSpec, TreeSpec
from surgery_cli.words.advice import FieldName, joined, worded


class Assertion(Operation):
    """Rules as an edit, which changes nothing; its own fields are those of the rules."""

    writes: ClassVar[bool] = False
    selects_everything_without_at: ClassVar[bool] = True
    dtype_fields: ClassVar[tuple[str, ...]] = ("where_dtype", "dtype")
    unused_fields: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"optimizer": "it changes nothing that twins could follow"}
    )

    def __post_init__(self) -> None:
        """Raise PlanError if no rule is stated, or what belongs to a rule that is not."""
        stated = {type(rule) for rule in self.rules}
        for kind in _rules():
            first, *others = fields_of_rule(kind)
            for field in others:
                if kind not in stated and getattr(self, field.name) is not None:
                    raise PlanError(
                        worded("{} belongs to {}", _named(field), _named(first)),
                        fix=worded("add {}, or take it out", _named(first)),
                        field=field.encode_name,
                    )
        if not stated:
            names = (worded("{}", _named(fields_of_rule(kind)[0])) for kind in _rules())
            raise PlanError(
                "`assert` states no rule",
                fix=worded("add one or several: {}", joined(", ", names)),
            )

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Those that the edit states."""
        return tuple(_stated(self))

    @property
    def summary(self) -> str:
        patterns = ", ".join(self.patterns)
        return " ".join(filter(None, (patterns, ", ".join(rule.text for rule in self.rules))))

    def selectable(self, spec: LeafSpec) -> bool:
        return True

    def check_values(self) -> None:
        super().check_values()
        for rule in self.rules:
            rule.check_values(self.patterns)

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        checks = self.checks(draft, scene)
        raise_all(dict.fromkeys(breach for check in checks for breach in check.breaches))
        return draft.replaced(checks=(*draft.checks, *checks))

    def checks(self, draft: Draft, scene: Scene) -> list[Check]:
        """What metadata tell of each of the rules, and what is left to be judged by values.

        Raises:
            PlanError: nothing is named, or the fields say what no checkpoint could break.
            SurgeryError: what leaves are compared with cannot be opened.
        """
        self.check_values()  # rules of a policy are not edits, which were asked before
        rules = self.rules
        optional = self.optional or any(rule.may_name_nothing for rule in rules)
        here = self._exceptions_here(rules, draft, scene)
        edit = msgspec.structs.replace(self, optional=optional, except_=here)
        leaves = scene.select(edit, draft)
        named = Named(leaves, draft, scene, partial(named_elsewhere, self))
        gathering, found = Gathering(), []
        for rule in rules:
            with gathering.catching(field=rule.name):
                found.append(_check(rule, named, may_judge_nothing=self.optional))
        gathering.raise_if_any()
        return found

    def _exceptions_here(
        self, rules: Sequence[Rule], draft: Draft, scene: Scene
    ) -> tuple[str, ...]:
        """Without those that leave out only what is gone, and stands in a tree that a rule looks at."""
        gathering, others = Gathering(), list[TreeSpec]()
        for rule in rules if self.exceptions else ():
            with gathering.catching(field=rule.name):
                if (tree := rule.held_against(draft, scene)) is not None:
                    others.append(tree)
        gathering.raise_if_any()
        return tuple(
            text
            for text in self.exceptions
            if (pattern := PathPattern(text)).named(draft.texts)
            or not any(pattern.named(tree.texts) for tree in others)
        )


def _named(field: Any) -> FieldName:
    return FieldName(field.encode_name)


@cache  # msgspec compiles the annotations at each call: most of the time of a plan of many rules
def fields_of_rule(kind: type[Rule]) -> tuple[Any, ...]:
    """The fields of a rule; the first one states it."""
    return msgspec.structs.fields(kind)


def _rules() -> tuple[type[Rule], ...]:
    from surgery_cli.rules.table import RULES  # which a run that states none does without

    return RULES


def _stated(edit: Operation) -> Iterator[Rule]:
    for kind in _rules():
        given = {field.name: getattr(edit, field.name) for field in fields_of_rule(kind)}
        if given[fields_of_rule(kind)[0].name] is not None:
            yield kind(**{name: value for name, value in given.items() if value is not None})


def _check(rule: Rule, named: Named, *, may_judge_nothing: bool) -> Check:
    """What metadata tell of a rule, and what is left to be judged by values.

    What is named without values breaks a rule that says something of values, unless it ``may_judge_nothing``.

    Raises:
        SurgeryError: what leaves are compared with cannot be opened.
    """
    breaches = [*_breaches_of_all(rule, named, may_judge_nothing=may_judge_nothing)]
    counted = [
        path
        for path in named.leaves
        if rule.judges_empty or named.draft.leaves[path].spec.kind is not LeafKind.EMPTY
    ]
    on: list[CheckedLeaf] = []
    for path in counted:
        output = named.draft.leaves[path]
        broken = Problem(f"'{path}' breaks `{rule.text}`", path=str(path), field=rule.name)
        try:
            if breach := rule.breach(path, output, named):
                breaches.append(msgspec.structs.replace(broken, why=breach))
            elif not rule.is_told(path, output, named):
                other = rule.other(path, named)
                beside = None if other is None else other.recipe
                on.append(CheckedLeaf(path, rule.of_leaf(path, named), output.recipe, beside))
        except MissingError:
            raise
        except PlanError as error:
            breaches += (_placed(problem, broken) for problem in error.problems)
    apart = tuple(rule.set_apart(named))
    edit = len(named.draft.outcomes)
    return Check(edit, rule, len(counted), tuple(on), breaches=tuple(breaches), apart=apart)


def _breaches_of_all(rule: Rule, named: Named, *, may_judge_nothing: bool) -> Iterator[Problem]:
    """What breaks a rule beside single leaves: the leaves as a whole, and places where there is none."""
    breach = rule.breach_of_selection(named)
    if not breach and not may_judge_nothing:
        breach = rule.nothing_judged(named)
    if breach:
        yield Problem(f"`{rule.text}` does not hold", why=breach, field=rule.name)
    for path, why in rule.absent(named):
        yield Problem(f"'{path}' breaks `{rule.text}`", why, path=str(path), field=rule.name)


def _placed(problem: Problem, at: Problem) -> Problem:
    """The problem with the leaf and the field that another one is about, where it names none."""
    path, field = problem.path or at.path, problem.field or at.field
    return msgspec.structs.replace(problem, path=path, field=field)
