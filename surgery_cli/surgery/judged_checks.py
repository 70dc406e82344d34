"""What documents say of the rules that a plan states: of how many leaves, and what was found."""

from __future__ import annotations

from collections.abc import Sequence

from surgery_cli import reports
from surgery_cli.draft.check import Apart, Check, InPolicy
from surgery_cli.draft.recipe import Draft
from surgery_cli.engine.checks import Finding, breaches
from surgery_cli.errors import Problem
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.quantities import counted


def judged_checks(
    draft: Draft, findings: Sequence[Finding] | None = None
) -> list[reports.CheckedRule]:
    """Every rule of the plan; what is judged by values is open until there are ``findings``."""
    numbers = numbers_found(findings or ())
    broken = breaches_found(draft.checks, findings or ())
    return [
        reports.CheckedRule(
            edit=0 if check.policy is not None else check.edit + 1,
            rule=check.rule.text,
            **_in_policy(check.policy),
            leaves=check.count,
            by_values=len(check.on),
            holds=_holds(check, broken, is_open=findings is None),
            least=min(numbers.get(id(check), {}).values(), default=None),
            most=max(numbers.get(id(check), {}).values(), default=None),
            of_each=numbers.get(id(check), {}) if check.rule.tells_each else {},
            breaches=broken.get(id(check), []),
            apart=apart_found(check, findings or ()),
        )
        for check in draft.checks
    ]


def numbers_found(findings: Sequence[Finding]) -> dict[int, dict[str, float]]:
    """The number that was measured of each leaf, by the id of the check."""
    found: dict[int, dict[str, float]] = {}
    for check, leaf, judged in findings:
        if judged.number is not None:
            found.setdefault(id(check), {})[str(leaf.path)] = judged.number
    return found


def apart_found(check: Check, findings: Sequence[Finding]) -> list[Apart]:
    """The leaves of which a check says nothing: as metadata tell, then those that their values let through."""
    through: dict[str, list[str]] = {}
    for by, leaf, judged in findings:
        if by is check and judged.apart:
            through.setdefault(judged.apart, []).append(str(leaf.path))
    return [
        *check.apart,
        *(
            Apart(what=f"{counted(len(leaves), 'leaf', 'leaves')} {why}", leaves=leaves)
            for why, leaves in through.items()
        ),
    ]


def breaches_found(
    checks: Sequence[Check], findings: Sequence[Finding]
) -> dict[int, list[Problem]]:
    """What breaks a check, by its id: what metadata tell, then what values do."""
    found = {id(check): list(check.breaches) for check in checks if check.breaches}
    for check, problem in breaches(findings):
        found.setdefault(id(check), []).append(problem)
    return found


def warnings_said(checks: Sequence[Check], findings: Sequence[Finding] = ()) -> list[Consequence]:
    """A sentence for each rule of a policy that only warns, and does not hold: by metadata, or by ``findings``."""
    broken: dict[tuple[str, str], list[Problem]] = {}
    known = ((check, problem) for check in checks for problem in check.breaches)
    for check, problem in breaches(findings) if findings else known:
        if check.policy is not None and check.is_warning:
            key = check.policy.id, check.policy.message
            broken.setdefault(key, []).append(problem)
    return [_warning(name, message, problems) for (name, message), problems in broken.items()]


def _warning(name: str, message: str, problems: Sequence[Problem]) -> Consequence:
    first = ": ".join(filter(None, (problems[0].what, problems[0].why)))
    more = f", and {counted(len(problems) - 1, 'more finding')}" if len(problems) > 1 else ""
    said = f" ({message})" if message else ""
    return Consequence(
        DocsPage.CHECKS_IN_PLANS, f"the rule '{name}' does not hold{said}: {first}{more}"
    )


def _holds(check: Check, broken: dict[int, list[Problem]], *, is_open: bool) -> bool | None:
    if id(check) in broken:
        return False
    return None if check.on and is_open else True


def _in_policy(policy: InPolicy | None) -> dict[str, str]:
    if policy is None:
        return {}
    return {"id": policy.id, "severity": policy.severity, "message": policy.message}
