"""What a plan may ask for that nobody gives where it is resolved from metadata alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from surgery_cli.draft.expression import Made
from surgery_cli.draft.source import Source
from surgery_cli.draft.user_function import UserFunction
from surgery_cli.errors import PlanError


def nothing_measured(part: Made, _: Callable[[str], Source]) -> Any:
    """Raises PlanError."""
    raise PlanError(f"'{part.path}' is not measured here", why="nobody reads values for a plan")


def no_file(text: str) -> Any:
    """Raises PlanError."""
    raise PlanError(f"'{text}' is not read here", why="nobody reads files for a plan")


def no_function(text: str) -> UserFunction:
    """Raises PlanError."""
    raise PlanError(f"'{text}' is not run here", why="nobody loads functions of the user's")
