"""Numbers as people write them: decimals, and quotients such as `1/3`."""

from __future__ import annotations

import re
from typing import Final

from surgery_cli.errors import PlanError

FLOAT: Final = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
LONGEST_NUMBER: Final = 1000
FRACTION: Final = rf"{FLOAT}\s*/\s*{FLOAT}"


def fraction(text: str) -> float | None:
    """The value of `1/3`, rounded once; None for other text.

    >>> fraction("1/3") == 1 / 3, fraction("-2.5 / 1e-3"), fraction("runs/3")
    (True, -2500.0, None)

    Raises:
        PlanError: it divides by 0, or no float holds the quotient.
    """
    found = (
        re.fullmatch(rf"\s*({FLOAT})\s*/\s*({FLOAT})\s*", text)
        if len(text) <= LONGEST_NUMBER
        else None
    )
    if found is None:
        return None
    from fractions import Fraction  # nothing else at start-up needs it

    exponents = [int(e) for e in re.findall(r"[eE]([-+]?[0-9]+)", text)]
    try:
        if any(abs(exponent) > 999 for exponent in exponents):  # exact digits would fill the memory
            raise OverflowError
        quotient = Fraction(found[1]) / Fraction(found[2])
        if quotient and not float(quotient):
            raise OverflowError
        return float(quotient)
    except (ZeroDivisionError, OverflowError) as error:
        is_zero = isinstance(error, ZeroDivisionError)
        raise PlanError(
            f"'{text}' is no number",
            why="it divides by 0" if is_zero else "it is beyond what a float64 holds",
            fix="write a number, such as `1/3` or `0.5`",
        ) from None


def vanishes(text: str) -> bool:
    """True for a decimal other than 0 that is so small that a float64 makes it 0.

    >>> vanishes("1e-400"), vanishes("0.00"), vanishes("1e-300")
    (True, False, False)
    """
    return float(text) == 0 and bool(re.search("[1-9]", re.split("[eE]", text)[0]))


def decimal(text: str) -> float | str:
    """The number that a plan's text writes; one that ``vanishes`` stays text, and is refused as such."""
    return text if vanishes(text) else float(text)
