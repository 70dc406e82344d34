"""Errors as three short lines: what is wrong, why, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence

from surgery_cli.console.page import Cell, Page
from surgery_cli.errors import Problem, groups
from surgery_cli.words.quantities import counted

_MOST_SAID = 20


def render(problems: Sequence[Problem], page: Page) -> None:
    """The problems as text, each with the place in the plan or the leaf that it is about; those of one cause once."""
    said = groups(problems)
    for problem, _ in said[:_MOST_SAID]:
        page.verdict(Cell("error: ", "bad"), Cell(_place(problem)), Cell(problem.what, "strong"))
        # only a `why` has lines: those of the user's own code; a line end elsewhere is part of a name
        for line in filter(None, (*problem.why.split("\n"), problem.fix)):
            page.line(line, indent=2)
    every = sum(one.number for one in said)
    if left := sum(one.number for one in said[_MOST_SAID:]):
        page.line(f"and {left:,} more (`--json` lists them)")
    if every > len(said):
        page.line(f"{every:,} problems of {counted(len(said), 'cause')}")
    elif every > 1:
        page.line(f"{every:,} problems")


def _place(problem: Problem) -> str:
    place = ""
    if problem.file is not None and f"'{problem.file}'" not in problem.what:
        place = problem.place
    elif problem.file is not None and problem.line:
        place = f"line {problem.line}: "
    if problem.field and f"`{problem.field}" not in problem.what and problem.file is not None:
        place += f"`{problem.field}`: "
    if problem.path and problem.path not in problem.what:
        place += f"'{problem.path}': "
    return place
