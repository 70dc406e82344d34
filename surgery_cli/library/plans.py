"""What a program may give as a plan or a policy: a dict, text, a file, or what stands in it."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from surgery_cli.errors import PlanError
from surgery_cli.library.arguments import plain
from surgery_cli.operations.base import Operation
from surgery_cli.planning import (
    Plan,
    PolicyRule,
    plan_of_value,
    policy_of_value,
    read_plan,
    read_policy,
)
from surgery_cli.planning.plan_files import FORMATS

Planned = (
    Plan
    | Operation
    | Mapping[str, Any]
    | Sequence[Operation | Mapping[str, Any]]
    | str
    | os.PathLike[str]
)
"""A plan: its text (YAML or JSON), a `pathlib.Path` of its file, a dict like the file, or one edit or several."""

Policy = str | os.PathLike[str] | Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""A policy: its text (YAML or JSON), a `pathlib.Path` of its file, a dict like the file, or the list of its rules."""


def plan_from(planned: Planned, variables: Mapping[str, Any] = {}) -> Plan:
    """The plan that is meant; ``variables`` fill `${name}` in it.

    Raises:
        PlanError: it says something that a plan cannot mean; all problems at once.
    """
    if isinstance(planned, Plan):
        return planned
    settings = _texts(variables)
    if isinstance(planned, str):
        _refuse_name(planned, "plan")
        return read_plan("-", settings=settings, stdin=io.StringIO(planned), name="the plan")
    if isinstance(planned, os.PathLike):
        from surgery_cli.store.filesystem.small_files import read_anew

        return read_plan(os.fspath(planned), settings=settings, content=read_anew)
    if isinstance(planned, Operation):
        planned = [planned]
    if isinstance(planned, Mapping):
        return plan_of_value(plain(planned), settings=settings)
    if _is_list(planned):
        return plan_of_value({"edits": plain(planned)}, settings=settings)
    raise _other(planned, "plan", "operations in a list")


def policy_from(policy: Policy, variables: Mapping[str, Any] = {}) -> tuple[PolicyRule, ...]:
    """The rules that are meant. Raises as ``plan_from``."""
    settings = _texts(variables)
    if isinstance(policy, str):
        _refuse_name(policy, "policy")
        return read_policy("-", settings=settings, stdin=io.StringIO(policy), name="the policy")
    if isinstance(policy, os.PathLike):
        from surgery_cli.store.filesystem.small_files import read_anew

        return read_policy(os.fspath(policy), settings=settings, content=read_anew)
    if isinstance(policy, Mapping) or _is_list(policy):
        return policy_of_value(plain(policy), settings=settings)
    raise _other(policy, "policy", "the list of its rules")


def _refuse_name(text: str, what: str) -> None:
    """Raise PlanError for a text that is no plan or policy but the name of one's file."""
    if "\n" not in text and PurePath(text).suffix in FORMATS and ": " not in text:
        raise PlanError(
            f"'{text}' is the name of a file",
            why=f"text is read as the {what} itself",
            fix=f"give `pathlib.Path({text!r})`",
            field=what,
        )


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, bytes)


def _texts(variables: Mapping[str, Any]) -> dict[str, str]:
    """Variables as `--set` gives them."""
    return {name: "null" if value is None else str(value) for name, value in variables.items()}


def _other(value: Any, what: str, more: str) -> PlanError:
    return PlanError(
        f"a value of type `{type(value).__name__}` is no {what}",
        fix=f"give its text, a `pathlib.Path` of its file, a dict like the file, or {more}",
        field=what,
    )
