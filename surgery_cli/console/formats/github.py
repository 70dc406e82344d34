"""Annotations on GitHub: workflow commands that its runner reads in the log of a job."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from surgery_cli.console.printable import printable_suite
from surgery_cli.document import Case, Document, Suite

_MOST: Final = 10
"""GitHub shows no more of a step."""

_LEVELS: Final = {"error": "error", "failed": "error", "warned": "warning"}


def text_of(document: Document) -> str:
    """A command a line, errors first; what does not fit is counted by the last.

    Source: https://docs.github.com/actions/reference/workflow-commands-for-github-actions
    """
    suite = printable_suite(document)
    cases = sorted(
        (case for case in suite.cases if case.outcome in _LEVELS),
        key=lambda case: list(_LEVELS).index(case.outcome),
    )
    shown = cases if len(cases) <= _MOST else cases[: _MOST - 1]
    lines = [_command(case, suite) for case in shown]
    if rest := len(cases) - len(shown):
        level = _LEVELS[cases[len(shown)].outcome]
        lines.append(f"::{level} title=surgery::and {rest:,} more: see the report")
    return "".join(f"{line}\n" for line in lines)


def _command(case: Case, suite: Suite) -> str:
    command = suite.command
    title = case.name if case.name == command else f"{command}: {case.name}"
    place = {"file": _in_workspace(case.file), "line": case.line, "col": case.column}
    given = {**place, "title": title}
    properties = ",".join(f"{key}={_property(str(v))}" for key, v in given.items() if v)
    about = f"in {suite.judged}" if suite.judged else ""
    text = "\n".join(filter(None, (case.what, *case.details[:_MOST], about)))
    return f"::{_LEVELS[case.outcome]} {properties}::{_data(text)}"


def _in_workspace(file: str | None) -> str | None:
    """The file as GitHub knows it: relative to the repository."""
    workspace = os.environ.get("GITHUB_WORKSPACE")
    if file is None or not workspace:
        return file
    path = Path(file).absolute()
    return str(path.relative_to(workspace)) if path.is_relative_to(workspace) else file


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
