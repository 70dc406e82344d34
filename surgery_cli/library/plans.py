"""What a program may give as a plan: a dict, text, a file, or operations."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from surgery_cli.errors import PlanError
from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.operations.base import Operation
from surgery_cli.planning import Plan, plan_of_value, read_plan

Planned = (
    Plan
    | Operation
    | Mapping[str, Any]
    | Sequence[Operation | Mapping[str, Any]]
    | str
    | os.PathLike[str]
)
"""A plan: its text (YAML or JSON), a `pathlib.Path` of its file, a dict like the file, or one edit or several."""


def plan_from(planned: Planned, variables: Mapping[str, Any] = {}) -> Plan:
    """The plan that is meant; ``variables`` fill `${name}` in it.

    Raises:
        PlanError: it says something that a plan cannot mean; all problems at once.
    """
    settings = {name: str(value) for name, value in variables.items()}
    if isinstance(planned, Plan):
        return planned
    if isinstance(planned, str):
        return read_plan("-", settings=settings, stdin=io.StringIO(planned))
    if isinstance(planned, Operation):
        planned = [planned]
    if isinstance(planned, Mapping):
        return plan_of_value(_plain(planned), settings=settings)
    if isinstance(planned, Path | BucketPath | os.PathLike):
        from surgery_cli.store import filesystem

        return read_plan(os.fspath(planned), settings=settings, content=filesystem.read_anew)
    if isinstance(planned, Sequence):
        return plan_of_value({"edits": _plain(planned)}, settings=settings)
    raise PlanError(
        f"a {type(planned).__name__} is no plan",
        fix="give its text, a `pathlib.Path` of its file, a dict like the file, or operations in a list",
    )


def _plain(value: Any) -> Any:
    """The value as a plan file would hold it: operations as their fields."""
    if isinstance(value, Operation):
        return msgspec.to_builtins(value)
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(inner) for inner in value]
    return value
