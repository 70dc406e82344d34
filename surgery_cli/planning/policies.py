"""Policies: rules that a checkpoint must keep, each with its id; in a file of their own, or as `check:` of a plan."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TextIO, get_args

import msgspec

from surgery_cli.draft.check import InPolicy, Severity
from surgery_cli.errors import PlanError, Problem
from surgery_cli.inputs.addresses import address
from surgery_cli.inputs.buckets import path_at
from surgery_cli.operations.asserting import Assertion
from surgery_cli.operations.table import operations
from surgery_cli.planning.fields import fields_of
from surgery_cli.planning.placed_edits import Place, built
from surgery_cli.planning.plan import PolicyRule
from surgery_cli.planning.plan_files import (
    STANDARD_INPUT,
    file_text,
    format_of,
    parse,
    standard_input,
)
from surgery_cli.planning.text import Mark, PlanText, both_places, nearest_fix, shown, text_of_value
from surgery_cli.planning.variables import Variables

OWN_KEYS: Final = ("id", "severity", "message")
"""What a rule of a policy says beside what `assert` does."""

_TOP_LEVEL: Final = ("rules", "vars", "$schema")
_SEVERITIES: Final = get_args(Severity)
_EXAMPLE: Final = "`rules:`, then `- {id: no-nan, at: params, finite: true}`"


IN_A_POLICY: Final = "write `rules:` in place of `check:`, which is how a plan says it"


def rule_keys() -> list[str]:
    """The keys of a rule, in the order in which they are documented."""
    meaningless = ("optimizer", "twins")
    return [
        *OWN_KEYS,
        *(f.name for f in fields_of(operations()["assert"]) if f.name not in meaningless),
    ]


def read_policy(
    path_or_dash: str,
    *,
    settings: Mapping[str, str] = {},
    stdin: TextIO | None = None,
    content: Callable[[Path], bytes] = Path.read_bytes,
    is_linted: bool = False,
    name: str = STANDARD_INPUT,
) -> tuple[PolicyRule, ...]:
    """The rules of a policy file, its format told by the suffix; `-` reads YAML (or JSON) from standard input.

    ``settings`` fill `${name}` before `vars:` does. ``content`` reads the file. ``is_linted``, ``name``: see
    `read_plan`.

    Raises:
        PlanError: the file cannot be read, or says something that a policy cannot mean; all problems at once.
    """
    if path_or_dash == "-":
        text = parse(standard_input(stdin or sys.stdin, name), "YAML", name)
        directory = str(Path.cwd())
    else:
        path = path_at(address(path_or_dash))
        text = parse(file_text(path, content, "policy"), format_of(path, "policy"), str(path))
        directory = str(path.parent.absolute())
    return _filled(text, settings, directory, is_linted=is_linted)


def policy_of_value(value: Any, *, settings: Mapping[str, str] = {}) -> tuple[PolicyRule, ...]:
    """The rules that a program has put together, as a file would say them; raises as ``read_policy``."""
    return _filled(text_of_value(value), settings, str(Path.cwd()), is_linted=False)


def _filled(
    text: PlanText, settings: Mapping[str, str], directory: str, *, is_linted: bool
) -> tuple[PolicyRule, ...]:
    """The rules of a policy, its variables filled in."""
    text = _as_mapping(text)
    variables = Variables(text, settings, is_linted=is_linted, kind="policy")
    filled = variables.filled()
    problems = list(variables.problems)
    place = Place(text, (), directory, unfilled=variables.unfilled, is_linted=is_linted)
    rules, more = _read_mapping(place, filled, _TOP_LEVEL)
    if problems or more:
        raise PlanError.of(sorted([*problems, *more], key=lambda p: (p.line or 0, p.column or 0)))
    return rules


def _as_mapping(text: PlanText) -> PlanText:
    """A policy as a mapping of `rules`; one that is the list alone stands for that.

    Raises:
        PlanError: it is neither.
    """
    if isinstance(text.value, list):
        marks = {("rules", *at): mark for at, mark in text.marks.items()}
        return msgspec.structs.replace(text, value={"rules": text.value}, marks=marks)
    if not isinstance(text.value, dict) or "rules" not in text.value:
        raise PlanError(
            "it holds no policy",
            why="a policy is a list of rules, or a mapping of `rules` and `vars`",
            fix=IN_A_POLICY
            if isinstance(text.value, dict) and "check" in text.value
            else f"begin with {_EXAMPLE}",
            file=text.file or None,
        )
    return text


def read_rules(place: Place, given: Any) -> tuple[tuple[PolicyRule, ...], list[Problem]]:
    """The rules that stand at a ``place`` of a plan, as a list or a policy, and all that is wrong with them."""
    if isinstance(given, dict) and "rules" in given:
        return _read_mapping(place, given, ("rules",))
    return _read_list(place, given)


def _read_list(place: Place, given: Any) -> tuple[tuple[PolicyRule, ...], list[Problem]]:
    if not isinstance(given, list):
        if place.is_unfilled:
            return (), []
        what = f"`{place.position[-1]}` must be a list of rules, not {shown(given)}"
        return (), [place.problem(what, fix=_EXAMPLE)]
    if not given:
        what = f"`{place.position[-1]}` holds no rule"
        return (), [place.problem(what, why="it would hold of every checkpoint", fix=_EXAMPLE)]
    rules: list[PolicyRule] = []
    problems: list[Problem] = []
    marks: dict[str, Mark | None] = {}
    for number, values in enumerate(given):
        here = place.within(number)
        rule, wrong = _read_rule(here, number + 1, values)
        problems += wrong
        if rule is None:
            continue
        rules.append(rule)
        name = rule.policy.id
        if name in marks:
            problems.append(
                here.problem(
                    f"two rules are called '{name}'",
                    why=both_places(marks[name], rule.origin.mark),
                    fix="give each an `id` of its own",
                    field="id",
                )
            )
        marks.setdefault(name, rule.origin.mark)
    return tuple(rules), problems


def _read_mapping(
    place: Place, given: Mapping[str, Any], known: Sequence[str]
) -> tuple[tuple[PolicyRule, ...], list[Problem]]:
    """The rules of a policy that is a mapping of the ``known`` keys."""
    rules, problems = _read_list(place.within("rules"), given["rules"])
    keys = f"keys are {', '.join(key for key in known if key != '$schema')}"
    for key in given:
        if key not in known:
            here = place.within(key)
            fix = nearest_fix(key, list(known), otherwise=keys)
            if key == "vars":
                fix = "variables of a plan stand in the `vars` beside its edits"
            problems.append(here.problem(f"a policy has no key `{key}`", fix=fix, field=key))
    return rules, problems


def _read_rule(place: Place, number: int, values: Any) -> tuple[PolicyRule | None, list[Problem]]:
    if place.is_unfilled:
        return None, []
    if not isinstance(values, dict):
        what = f"rule {number} must be a mapping, not {shown(values)}"
        return None, [place.problem(what, fix="e.g. `- {id: no-nan, at: params, finite: true}`")]
    known, problems = rule_keys(), []
    for key in values:
        if key not in known:
            fix = nearest_fix(key, known, otherwise=f"keys are {', '.join(known)}")
            what = f"a rule has no key `{key}`"
            problems.append(place.within(key).problem(what, fix=fix, field=key))
    own, wrong = _own(place, values)
    fields = {key: value for key, value in values.items() if key in known and key not in OWN_KEYS}
    unknown = {place.within(key).position for key in values if key not in known}
    there = place._replace(unfilled={*place.unfilled, *unknown})
    edit, more = built(there, operations()["assert"], fields, why=f"in rule {number}")
    problems += [*wrong, *more]
    if problems or not isinstance(edit, Assertion):
        return None, problems
    origin = place.origin(number, values)
    named = InPolicy(**{"id": edit.summary, **own})
    return PolicyRule(assertion=edit, policy=named, origin=origin), []


def _own(place: Place, values: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
    """The id, severity and message of a rule, and what is wrong with them."""
    problems: list[Problem] = []
    own = {key: values[key] for key in OWN_KEYS if key in values}
    for key, value in own.items():
        there = place.within(key)
        if there.is_unfilled:
            continue
        if not isinstance(value, str) or not value:
            problems.append(there.problem(f"`{key}` must be text, not {shown(value)}", field=key))
        elif key == "severity" and value not in _SEVERITIES:
            fix = "`error` fails the check, `warning` is only said"
            what = f"`severity` is one of `error` and `warning`, not {shown(value)}"
            problems.append(there.problem(what, fix=fix, field=key))
    return own, problems
