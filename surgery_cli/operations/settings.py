"""What the settings of value edits may be: numbers that a dtype holds, axes that a leaf has."""

from __future__ import annotations

import math
import re

from surgery_cli.errors import PlanError
from surgery_cli.tree.specs import LeafSpec, is_complex, is_integer

LARGEST = {
    "float64": 1.7976931348623157e308,
    "float32": 3.4028234663852886e38,
    "bfloat16": 3.3895313892515355e38,
    "float16": 65504.0,
    "float8_e3m4": 15.5,
    "float8_e4m3": 240.0,
    "float8_e4m3fn": 448.0,
    "float8_e4m3fnuz": 240.0,
    "float8_e4m3b11fnuz": 30.0,
    "float8_e5m2": 57344.0,
    "float8_e5m2fnuz": 57344.0,
}
"""The largest finite value of every floating dtype that a leaf can be cast to."""

SMALLEST = {
    "float64": 2.0**-1074,
    "float32": 2.0**-149,
    "bfloat16": 2.0**-133,
    "float16": 2.0**-24,
    "float8_e3m4": 2.0**-6,
    "float8_e4m3": 2.0**-9,
    "float8_e4m3fn": 2.0**-9,
    "float8_e4m3fnuz": 2.0**-10,
    "float8_e4m3b11fnuz": 2.0**-13,
    "float8_e5m2": 2.0**-16,
    "float8_e5m2fnuz": 2.0**-17,
}
"""The smallest value above 0 of each of them."""

_COMPLEX_PARTS = {"complex64": "float32", "complex128": "float64"}


def integer_range(dtype: str) -> tuple[int, int]:
    """The smallest and the largest value of an integer dtype.

    >>> integer_range("int4"), integer_range("uint8")
    ((-8, 7), (0, 255))
    """
    bits = int(re.sub(r"\D", "", dtype))
    if dtype.startswith("uint"):
        return 0, 2**bits - 1
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def check_finite(value: float, field: str) -> None:
    """Refuse NaN and infinities as settings.

    Raises:
        PlanError: the value is not finite.
    """
    if not -math.inf < value < math.inf:  # an integer may be beyond any float
        raise PlanError(
            f"`{field}` is {value}",
            why="it must be a finite number",
            fix=f"write a number, such as `{field}: 1.0`",
            field=field,
        )


def check_fits(value: float, spec: LeafSpec, field: str) -> None:
    """See that a leaf can be filled with a number.

    Raises:
        PlanError: it is not finite, too large, not 0 and would be, or no integer where the leaf holds integers.
    """
    check_finite(value, field)
    if is_integer(spec.dtype):
        low, high = integer_range(spec.dtype)
        if value == int(value) and low <= value <= high:
            return
        why = f"it holds the integers from {low} to {high}"
        fix = "write one of them"
    else:
        part = _COMPLEX_PARTS[spec.dtype] if is_complex(spec.dtype) else spec.dtype
        largest = LARGEST.get(part, math.inf)
        if abs(value) <= largest:
            check_above_zero(value, spec, field)
            return
        why = f"the largest value it holds is {largest:g}"
        fix = "write a smaller number, or cast the leaf first to a wider dtype"
    raise PlanError(
        f"`{field}: {value}` does not fit {spec.type_text}",
        why=why,
        fix=fix,
        field=field,
    )


def check_above_zero(value: float, spec: LeafSpec, field: str) -> None:
    """See that a number is still there after rounding to the leaf's dtype.

    Raises:
        PlanError: it is not 0, and would be.
    """
    smallest = SMALLEST.get(_COMPLEX_PARTS.get(spec.dtype, spec.dtype), 0.0)
    if value and abs(value) <= smallest / 2:  # a tie goes to 0, which is even
        raise PlanError(
            f"`{field}: {value:g}` would become 0 in {spec.type_text}",
            why=f"the smallest value above 0 that it holds is {smallest:.3g}",
            fix="write 0 if that is meant, else a larger number, or cast the leaf first to a wider dtype",
            field=field,
        )


def resolve_axes(axis: int | tuple[int, ...], ndim: int, field: str) -> tuple[int, ...]:
    """Axes counted from the first.

    Raises:
        PlanError: there are none, one is not there, or one is named twice.

    >>> resolve_axes((0, -1), 4, "axis")
    (0, 3)
    """
    given = (axis,) if isinstance(axis, int) else axis
    axes = tuple(n % ndim if -ndim <= n < ndim else n for n in given)
    if not axes or len(set(axes)) < len(axes) or any(not 0 <= n < ndim for n in axes):
        raise PlanError(
            f"`{field}: {', '.join(map(str, given))}` does not fit a leaf with {ndim} axes",
            why=f"axes are different numbers from {-ndim} to {ndim - 1}"
            if ndim
            else "it is a scalar",
            fix=f"choose others, or select leaves that have them: `where_ndim: {_needed(given)}`"
            if given and _needed(given) > ndim
            else "name every axis once"
            if ndim
            else "leave it out with `except`",
            field=field,
        )
    return axes


def _needed(axes: tuple[int, ...]) -> int:
    """How many axes a leaf needs to have these."""
    return max(n + 1 if n >= 0 else -n for n in axes)
