"""What ``verify`` found."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from surgery_cli.document import Case


class Subject(StrEnum):
    """What a finding is about."""

    LEAF = "leaf"
    NODE = "node"
    """A container of leaves."""
    FILE = "file"
    """One beside values, or a folder."""
    ITEM = "item"
    """One that is no tree."""
    RECORD = "record"
    """The digests that all was to be held against."""


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that ``verify`` found: a damaged leaf, or a disagreement with what it was held against."""

    path: str
    what: str
    about: Subject = Subject.LEAF
    here: str = ""
    there: str = ""
    detail: str = ""
    """What is wrong, in words, where no two sides disagree."""
    effect: str = ""
    """What Orbax's restore makes of it, where the tree was held against a training script."""
    leaves: int = 1
    """How many leaves are concerned; a subtree is one finding."""
    twins: list[str] = []
    """Nodes of the optimizer state with the same fault, which follow the edit."""
    edits: list[dict[str, Any]] = []
    """Edits of a plan that mend it, tried out on the metadata."""
    certainty: str = ""
    """How sure it is that what stands here is what the script has elsewhere: ``sure`` or ``likely``."""
    why: list[str] = []
    fix: str = ""

    @property
    def sureness(self) -> str:
        """How sure it is, and why, in words; '' where nothing was taken for what stands elsewhere."""
        return f"{self.certainty}: {', '.join(self.why)}" if self.certainty else ""


def case_of(finding: Finding) -> Case:
    """The finding as a case of a suite that failed."""
    sides = ((side, text) for side, text in (("here", finding.here), ("there", finding.there)))
    said = (finding.detail, finding.effect, finding.sureness, finding.fix)
    return Case(
        name=finding.path or ".",
        outcome="failed",
        what=finding.what,
        details=[*(f"{side} {text}" for side, text in sides if text), *filter(None, said)],
    )


def of_step(root: str, step: int | UnsetType) -> str:
    """What a suite is about: two steps of a run that were named are two things, to what keeps their results."""
    return root if step is UNSET else f"{root}@{step}"
