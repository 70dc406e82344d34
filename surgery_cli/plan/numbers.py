"""Numbers as people write them where a number is asked for: `1/3`, and text that only looks like one."""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

from surgery_cli.errors import PlanError
from surgery_cli.plan.yaml_text import FLOAT, LONGEST_NUMBER

FRACTION: Final = rf"{FLOAT}\s*/\s*{FLOAT}"
_FRACTION: Final = re.compile(rf"\s*({FLOAT})\s*/\s*({FLOAT})\s*")


def fraction(text: str) -> float | None:
    """The value of `1/3`, rounded once; None for other text.

    >>> fraction("1/3") == 1 / 3, fraction("-2.5 / 1e-3"), fraction("runs/3")
    (True, -2500.0, None)

    Raises:
        PlanError: it divides by 0, or no float holds the quotient.
    """
    found = _FRACTION.fullmatch(text) if len(text) <= LONGEST_NUMBER else None
    if found is None:
        return None
    from fractions import Fraction  # nothing else at start-up needs it

    exponents = [int(e) for e in re.findall(r"[eE]([-+]?[0-9]+)", text)]
    try:
        if any(abs(exponent) > 999 for exponent in exponents):  # exact digits would fill the memory
            raise OverflowError
        return float(Fraction(found[1]) / Fraction(found[2]))
    except (ZeroDivisionError, OverflowError) as error:
        is_zero = isinstance(error, ZeroDivisionError)
        raise PlanError(
            f"'{text}' is no number",
            why="it divides by 0" if is_zero else "it is beyond what a float64 holds",
            fix="write a number, such as `1/3` or `0.5`",
        ) from None


def with_fractions(value: Any) -> Any:
    """``value`` with texts like `1/3` as numbers, in a list too; for fields that take numbers. Raises as `fraction`."""
    if isinstance(value, list | tuple):
        return [with_fractions(item) for item in value]
    if not isinstance(value, str):
        return value
    number = fraction(value)
    return value if number is None else number


def number_or_path(text: str, directory: str, sources: Collection[str]) -> float | str:
    """Text in a field that takes numbers and paths: `1/3` as a number, a path as it stands.

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
    elif re.fullmatch(FLOAT, text):
        why = "YAML reads a number in quotes as text"
    fix = f"write `{plain}`" + (" without quotes" if plain == text else "")
    return PlanError(f"'{text}' is text, not a number", why=why, fix=fix)
