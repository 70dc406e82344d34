"""Linting: what is wrong with plans and policies by themselves, without any checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from surgery_cli.errors import PlanError
from surgery_cli.inputs.buckets import path_at
from surgery_cli.planning.plan_files import file_text, format_of, parse
from surgery_cli.planning.policies import IN_A_POLICY, read_policy
from surgery_cli.planning.reading import read_plan


def lint(file: str, content: Callable[[Path], bytes] = Path.read_bytes) -> tuple[str, int]:
    """What a file is (`plan` or `policy`), and how many edits or rules it has; see that it means something.

    Variables may be left open: `--set` gives them when it is used. Files that it names are not looked for.
    ``content`` reads the file; see `read_plan`.

    Raises:
        PlanError: everything that is wrong with it: keys, values, patterns, variables that nothing uses.
    """
    value = _value(path_at(file), content)
    if not value and not isinstance(value, list):
        raise PlanError(
            "it holds neither a plan nor a policy",
            why="nothing stands in it",
            fix="begin with `edits:`, or with `rules:`",
            file=file,
        )
    if _is_policy(value):
        read_policy(file, content=content, is_linted=True)
        rules = value["rules"] if isinstance(value, dict) else value
        return "policy", len(rules) if isinstance(rules, list) else 0
    if isinstance(value, dict) and "check" in value and not value.keys() & _DONE_BY_PLANS:
        raise PlanError(
            "`check` stands alone: `surgery check` takes a policy, and this is a plan that only copies",
            fix=f"for a policy {IN_A_POLICY}; for a plan add `edits: []`",
            file=file,
            field="check",
        )
    return "plan", len(read_plan(file, content=content, is_linted=True).origins)


_DONE_BY_PLANS: Final = frozenset({"edits", "output", "reshard"})
"""Keys of a plan that say what is done."""


def _value(path: Path, content: Callable[[Path], bytes]) -> Any:
    return parse(file_text(path, content), format_of(path), str(path)).value


def _is_policy(value: Any) -> bool:
    """True for a mapping of `rules`, or a list of what has no `op`."""
    if isinstance(value, list):
        return not any(isinstance(entry, dict) and "op" in entry for entry in value)
    return isinstance(value, dict) and "rules" in value and "edits" not in value
