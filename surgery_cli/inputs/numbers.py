"""Numbers as people write them: decimals, quotients such as `1/3`, and powers such as `64^-0.5`."""

from __future__ import annotations

import math
import re
from typing import Final

from surgery_cli.errors import PlanError

FLOAT: Final = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
LONGEST_NUMBER: Final = 1000
FRACTION: Final = rf"{FLOAT}\s*[/^]\s*{FLOAT}"


def fraction(text: str) -> float | None:
    """The value of `1/3`, rounded once, or of a power, `64^-0.5`; None for other text.

    >>> fraction("1/3") == 1 / 3, fraction("-2.5 / 1e-3"), fraction("64^-0.5"), fraction("runs/3")
    (True, -2500.0, 0.125, None)

    Raises:
        PlanError: it divides by 0, is the root of a number below 0, or no float holds it.
    """
    found = (
        re.fullmatch(rf"\s*({FLOAT})\s*([/^])\s*({FLOAT})\s*", text)
        if len(text) <= LONGEST_NUMBER
        else None
    )
    if found is None:
        return None
    exponents = [int(e) for e in re.findall(r"[eE]([-+]?[0-9]+)", text)]
    why = "it is beyond what a float64 holds"
    try:
        if any(abs(exponent) > 999 for exponent in exponents):  # exact digits would fill the memory
            raise OverflowError
        return (_quotient if found[2] == "/" else _power)(found[1], found[3])
    except ZeroDivisionError:
        why = "it divides by 0"
    except ValueError:
        why = "a root of a number below 0 is none"
    except OverflowError:
        pass
    raise PlanError(
        f"'{text}' is no number", why=why, fix="write a number, such as `1/3`, `64^-0.5` or `0.5`"
    )


def _quotient(one: str, other: str) -> float:
    from fractions import Fraction  # nothing else at start-up needs it

    quotient = Fraction(one) / Fraction(other)
    if quotient and not float(quotient):
        raise OverflowError
    return float(quotient)


def _power(base: str, exponent: str) -> float:
    value = math.pow(float(base), float(exponent)) if float(base) else 0.0 ** float(exponent)
    if math.isinf(value) or (not value and float(base)):
        raise OverflowError
    return value


def vanishes(text: str) -> bool:
    """True for a decimal other than 0 that is so small that a float64 makes it 0.

    >>> vanishes("1e-400"), vanishes("0.00"), vanishes("1e-300")
    (True, False, False)
    """
    return float(text) == 0 and bool(re.search("[1-9]", re.split("[eE]", text)[0]))


def decimal(text: str) -> float | str:
    """The number that a plan's text writes; one that ``vanishes`` stays text, and is refused as such."""
    return text if vanishes(text) else float(text)
