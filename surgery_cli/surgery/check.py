"""Check: hold a checkpoint against all rules of a policy; nothing is written."""

from __future__ import annotations

from collections.abc import Sequence

from surgery_cli import reports
from surgery_cli.draft.check import Apart, Check
from surgery_cli.engine.progress import Listener
from surgery_cli.errors import Problem
from surgery_cli.planning import Plan, PolicyRule
from surgery_cli.script.user_code import Say
from surgery_cli.settings.run import Options
from surgery_cli.surgery.judge import judged
from surgery_cli.surgery.judged_checks import apart_found, breaches_found, numbers_found


def check(
    source: str,
    rules: Sequence[PolicyRule],
    *,
    policy: str = "",
    options: Options = Options(),
    listener: Listener | None = None,
    say: Say = lambda _: None,
) -> reports.Checked:
    """What each rule of a policy says of a checkpoint; ``policy`` is what the document calls it.

    Rules that metadata decide read nothing; all others together read each leaf once, if memory has room for that: else
    it is read once more for each rule that holds it against chunks of another shape. ``say`` is told, before values are
    read, what takes more memory than it may, or more time.

    Raises:
        PlanError: the policy says what cannot be meant, or nothing stands at what it compares with.
        CheckpointError: the checkpoint, or what it is compared with, cannot be read.
    """
    found = judged(source, Plan(check=tuple(rules)), options, listener, say)
    broken = breaches_found(found.draft.checks, found.findings)
    numbers = numbers_found(found.findings)
    verdicts = []
    for rule in rules:
        checks = [check for check in found.draft.checks if check.policy is rule.policy]
        problems = [problem for check in checks for problem in broken.get(id(check), [])]
        measured = [n for check in checks for n in numbers.get(id(check), {}).values()]
        apart = [one for check in checks for one in apart_found(check, found.findings)]
        verdicts.append(_verdict(rule, checks, problems, measured, apart))
    is_broken = any(not one.holds and one.severity == "error" for one in verdicts)
    return reports.Checked(
        checkpoint=str(found.checkpoint.location.root),
        named_step=found.checkpoint.location.named_step,
        address=found.checkpoint.location.address,
        chosen=found.checkpoint.location.chosen,
        assumptions=found.assumptions,
        policy=policy,
        holds=not is_broken,
        rules=verdicts,
        bytes_read=found.bytes_read,
        sources_checked=found.sources_checked,
        not_judged=sorted(found.checkpoint.location.other_items),
        seconds=found.seconds,
    )


def _verdict(
    rule: PolicyRule,
    checks: Sequence[Check],
    problems: Sequence[Problem],
    measured: list[float],
    apart: list[Apart],
) -> reports.RuleVerdict:
    is_one = len(checks) == 1
    return reports.RuleVerdict(
        id=rule.policy.id,
        severity=rule.policy.severity,
        message=rule.policy.message,
        rules=[check.rule.text for check in checks],
        at=list(rule.assertion.patterns),
        holds=not problems,
        leaves=max((check.count for check in checks), default=0),
        by_values=max((len(check.on) for check in checks), default=0),
        findings=list(dict.fromkeys(problems)),
        apart=apart,
        least=min(measured, default=None) if is_one else None,
        most=max(measured, default=None) if is_one else None,
        file=rule.origin.file,
        line=rule.origin.line(),
    )
