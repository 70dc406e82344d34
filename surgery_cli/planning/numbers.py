"""Numbers in the fields of a plan: `1/3`, `64^-0.5`, and text that only looks like a number."""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from surgery_cli.errors import PlanError
from surgery_cli.inputs.numbers import FLOAT, fraction, vanishes
from surgery_cli.tree.nested import mapped


def with_fractions(value: Any) -> Any:
    """``value`` with texts like `1/3` as numbers, in a list too; for fields that take numbers. Raises as `fraction`."""
    return mapped(value, _number)


def _number(item: Any) -> Any:
    number = fraction(item) if isinstance(item, str) else None
    return item if number is None else number


def number_or_path(text: str, directory: str, sources: Collection[str]) -> float | str:
    """Text in a field that takes numbers and paths: `1/3` or `64^-0.5` as a number, a path as it stands.

    Raises:
        PlanError: it is a number and names something as well; or it was meant as a number and is none.
    """
    stands = text in sources or Path(directory, text).exists()
    number = fraction(text)
    if number is not None and stands:
        raise PlanError(
            f"'{text}' is the number {number!r}, and something of that name stands there",
            fix=f"write `./{text}` for what stands there, or `{number!r}`",
        )
    if number is None and not stands and (meant := _number_meant(text)):
        raise meant
    return text if number is None else number


def _number_meant(text: str) -> PlanError | None:
    """What to say of text, if Python would read a number there and YAML does not.

    >>> print(_number_meant("1_000"))
    '1_000' is text, not a number
      YAML numbers are digits with a point and an exponent, without `_`
      write `1000`
    """
    try:
        value = float(text)
    except ValueError:
        return None
    plain = text.replace("_", "").strip()
    why = "YAML numbers are digits with a point and an exponent, without `_`"
    if not -math.inf < value < math.inf:
        why, plain = "a finite number is needed", "1.0"
    elif re.fullmatch(FLOAT, text) and vanishes(text):
        why, plain = "it is smaller than any number that a float64 holds", "0"
    elif re.fullmatch(FLOAT, text):
        why = "YAML reads a number in quotes as text"
    fix = f"write `{plain}`" + (" without quotes" if plain == text else "")
    return PlanError(f"'{text}' is text, not a number", why=why, fix=fix)
