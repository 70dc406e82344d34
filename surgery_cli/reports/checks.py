"""Of `check`: what a policy says of a checkpoint, rule by rule."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from surgery_cli.document import Case, Document, Outcome, Suite
from surgery_cli.draft.check import Apart
from surgery_cli.errors import Problem
from surgery_cli.proof.record_parts import Assumed
from surgery_cli.reports.findings import of_step
from surgery_cli.words.quantities import counted, leaves_text


class RuleVerdict(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A rule of a policy, and how it was judged; ``file`` and ``line`` say where it stands."""

    id: str
    severity: str
    message: str = ""
    rules: list[str]
    """What it states, as people read it: ``norm ..100``."""
    at: list[str] = []
    """The patterns of the leaves that it is about; all of them without."""
    holds: bool
    leaves: int
    by_values: int = 0
    """Of how many leaves values were looked at: metadata tell of the others."""
    findings: list[Problem] = []
    """What breaks it, leaf by leaf."""
    apart: list[Apart] = []
    """Of which leaves it says nothing, and neither holds nor is broken there."""
    least: int | float | None = None
    most: int | float | None = None
    """Between which numbers the leaves lie, where it measures one."""
    file: str | None = None
    line: int | None = None

    @property
    def outcome(self) -> Outcome:
        """What became of it."""
        if self.holds:
            return "passed"
        return "warned" if self.severity == "warning" else "failed"


class Checked(Document, kw_only=True, frozen=True):
    """What ``check`` prints."""

    checkpoint: str
    named_step: int | UnsetType = UNSET
    """The step of a root, if the command named one."""
    address: str
    """Text that opens what was judged, whatever is saved meanwhile: of a root `ROOT@N`."""
    chosen: str = ""
    assumptions: list[Assumed] = []
    """That an older step of a root is meant, as none was named and the newest is unfinished; `--quiet` says it, too."""
    policy: str
    holds: bool
    """True if no rule is broken that is an error."""
    rules: list[RuleVerdict]
    bytes_read: int
    sources_checked: int = 0
    """Leaves that were read, have a digest on record, and agree with it."""
    not_judged: list[str] = []
    """Items that are no trees (metrics, JSON, single arrays): no rule is about them."""
    seconds: float

    def __bool__(self) -> bool:
        """True if it holds."""
        return self.holds

    def broken(self, severity: str) -> int:
        """How many rules of a severity are broken."""
        return sum(not rule.holds and rule.severity == severity for rule in self.rules)

    def suite(self) -> Suite:
        subject = of_step(self.checkpoint, self.named_step)
        cases = [_case(rule) for rule in self.rules]
        cases += [Case(name=p, outcome="skipped", what="not judged") for p in self.not_judged]
        return Suite("check", subject, cases, self.seconds, judged=self.address)


_MOST_APART: Final = 20
"""So many leaves are named in a line of which a rule says nothing; the document has all of them."""


def _case(rule: RuleVerdict) -> Case:
    apart = [one.text(_MOST_APART) for one in rule.apart]
    findings = [": ".join(filter(None, (one.said, one.why))) for one in rule.findings]
    what = rule.message or next(iter(findings), "")
    if not rule.message and len(findings) > 1:
        what = f"{what}, and {counted(len(findings) - 1, 'more finding')}"
    return Case(
        name=rule.id,
        outcome=rule.outcome,
        about="; ".join((f"{', '.join(rule.rules)}: {leaves_text(rule.leaves)}", *apart)),
        what=what if findings else "",
        details=[*(findings if what not in findings else []), *(apart if findings else [])],
        file=rule.file,
        line=rule.line,
    )
