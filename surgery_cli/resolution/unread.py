"""What is answered where a plan is resolved by metadata alone: nobody reads values or files, or runs functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from surgery_cli.draft.expression import Made, Recipe
from surgery_cli.draft.source import Source
from surgery_cli.draft.user_function import UserFunction
from surgery_cli.errors import PlanError
from surgery_cli.optimizer.detect.survey import OptimizerSurvey, survey

Values: TypeAlias = Callable[[Recipe, Callable[[str], Source]], tuple[float, ...] | None]
"""What gives the values of a leaf of sources that it is given by name; None if nobody reads values."""


def by_metadata(source: Source) -> OptimizerSurvey:
    """The survey of a source of which no value is read."""
    return survey(source.tree)


def nothing_measured(part: Made, _: Callable[[str], Source]) -> Any:
    """Raises PlanError: values are not read."""
    raise PlanError(f"'{part.path}' is not measured here", why="nobody reads values for a plan")


def no_file(text: str) -> Any:
    """Raises PlanError: files are not read."""
    raise PlanError(f"'{text}' is not read here", why="nobody reads files for a plan")


def no_function(text: str) -> UserFunction:
    """Raises PlanError: functions are not run."""
    raise PlanError(f"'{text}' is not run here", why="nobody loads functions of the user's")
