"""Linting: what is wrong with plans and policies by themselves, without any checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from surgery_cli.errors import PlanError
from surgery_cli.inputs.buckets import path_at
from surgery_cli.planning.plan_files import file_text, format_of, parse
from surgery_cli.planning.policies import read_policy
from surgery_cli.planning.reading import read_plan


def lint(file: str) -> tuple[str, int]:
    """What a file is (`plan` or `policy`), and how many edits or rules it has; see that it means something.

    Variables may be left open: `--set` gives them when it is used. Files that it names are not looked for.

    Raises:
        PlanError: everything that is wrong with it: keys, values, patterns, variables that nothing uses.
    """
    value = _value(path_at(file))
    if value is None:
        raise PlanError(
            "it holds neither a plan nor a policy",
            why="nothing stands in it",
            fix="begin with `edits:`, or with `rules:`",
            file=file,
        )
    if _is_policy(value):
        read_policy(file, is_linted=True)
        rules = value["rules"] if isinstance(value, dict) else value
        return "policy", len(rules) if isinstance(rules, list) else 0
    return "plan", len(read_plan(file, is_linted=True).origins)


def _value(path: Path) -> Any:
    return parse(file_text(path, Path.read_bytes), format_of(path), str(path)).value


def _is_policy(value: Any) -> bool:
    """True for a mapping of `rules`, or a list of what has no `op`."""
    if isinstance(value, list):
        return not any(isinstance(entry, dict) and "op" in entry for entry in value)
    return isinstance(value, dict) and "rules" in value and "edits" not in value
