"""The plan in a record: `surgery.json` is a plan, that of the run that wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from surgery_cli.errors import PlanError
from surgery_cli.inputs.self_digest import KEY, holds_own_digest
from surgery_cli.planning.text import PlanText

_OF_RECORDS: Final = {"schema_version", "surgery", "source_fingerprint", "draft", "plan"}
"""Keys that every record has, and no plan together."""


def is_record(value: Any) -> bool:
    """True for the document of a record."""
    return isinstance(value, dict) and value.keys() >= _OF_RECORDS


def holds_edits(plan: Any) -> bool:
    """True for the plan of a run that did more than to copy."""
    return isinstance(plan, dict) and any(plan.get(k) for k in ("edits", "reshard", "output"))


def plan_in_record(text: PlanText, raw: str, settings: Mapping[str, str]) -> PlanText:
    """The plan of the run that a record is of, with its own lines; ``raw`` is the record as it is written.

    Raises:
        PlanError: the record is of no run that edited, or was changed; or ``settings`` are to fill it in.
    """
    if settings:
        raise PlanError(
            f"nothing takes `--set {next(iter(settings))}`",
            why="a record holds the values of the run that it is of, and no variables",
            fix="leave it out; or put the record's `plan` into a file of its own, and change that",
            file=text.file,
        )
    record = text.value
    digest = record.get(KEY, "")
    if digest and not holds_own_digest(raw.encode(), digest):
        raise PlanError(
            "the record is not what was written",
            why="it does not agree with the digest of its own content: damage, or a change by hand",
            fix="copy it again from where it is whole; or put its `plan` into a file of its own, and change that",
            file=text.file,
        )
    plan = record["plan"]
    if not holds_edits(plan):
        by = "`surgery seal` wrote it" if record.get("sealed") else "nothing was edited"
        raise PlanError(
            "the record holds no plan",
            why=f"{by}: it is of no run with edits",
            fix="name the `surgery.json` of a checkpoint that an edit has written",
            file=text.file,
        )
    marks = {at[1:]: mark for at, mark in text.marks.items() if at[:1] == ("plan",) and at[1:]}
    return msgspec.structs.replace(text, value=plan, marks=marks)


def beside_plan(record: dict[str, Any]) -> dict[str, Any]:
    """What a record says of its plan, as fields of that: which donors they were, and which item it was about."""
    donors, trees = record.get("donors"), record.get("edited_trees")
    return {
        "fingerprints": dict(donors) if isinstance(donors, dict) else {},
        "of_item": str(trees[0]) if isinstance(trees, list) and len(trees) == 1 else "",
    }
