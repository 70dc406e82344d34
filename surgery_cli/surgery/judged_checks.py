"""What documents say of the rules that a plan states: of how many leaves, and what was found."""

from __future__ import annotations

from collections.abc import Sequence

from surgery_cli import reports
from surgery_cli.draft.recipe import Draft
from surgery_cli.engine.checks import Finding


def judged_checks(
    draft: Draft, findings: Sequence[Finding] | None = None
) -> list[reports.CheckedRule]:
    """Every rule of the plan; what is judged by values is open until there are ``findings``, which all hold."""
    found: dict[int, dict[str, float]] = {}
    for check, leaf, judged in findings or ():
        if judged.number is not None:
            found.setdefault(id(check), {})[str(leaf.path)] = judged.number
    numbers = {check: list(each.values()) for check, each in found.items()}
    return [
        reports.CheckedRule(
            edit=check.edit + 1,
            rule=check.rule.text,
            leaves=check.count,
            by_values=len(check.on),
            holds=None if check.on and findings is None else True,
            least=min(numbers.get(id(check), []), default=None),
            most=max(numbers.get(id(check), []), default=None),
            of_each=found.get(id(check), {}) if check.rule.tells_each else {},
        )
        for check in draft.checks
    ]
