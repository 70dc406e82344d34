"""What the settings of value edits may be: numbers that a dtype holds, axes that a leaf has."""

from __future__ import annotations

import math

from surgery_cli.errors import PlanError
from surgery_cli.tree.dtypes import integer_range, is_integer, part_of
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.advice import FieldName, worded
from surgery_cli.words.quantities import counted


def check_finite(value: float, field: str) -> None:
    """Refuse NaN and infinities as settings.

    Raises:
        PlanError: the value is not finite.
    """
    if not -math.inf < value < math.inf:  # an integer may be beyond any float
        raise PlanError(
            worded("{} is {}", FieldName(field), value),
            why="it must be a finite number",
            fix=worded("write a number, such as {}", FieldName(field, "1.0")),
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
        largest = part_of(spec.dtype).largest
        if abs(value) <= largest:
            check_above_zero(value, spec, field)
            return
        why = f"the largest value it holds is {largest:g}"
        fix = "write a smaller number, or cast the leaf first to a wider dtype"
    raise PlanError(
        worded("{} does not fit {}", FieldName(field, f"{value}"), spec.type_text),
        why=why,
        fix=fix,
        field=field,
    )


def check_above_zero(value: float, spec: LeafSpec, field: str) -> None:
    """See that a number is still there after rounding to the leaf's dtype.

    Raises:
        PlanError: it is not 0, and would be.
    """
    smallest = part_of(spec.dtype).least
    if value and abs(value) <= smallest / 2:  # a tie goes to 0, which is even
        raise PlanError(
            worded("{} would become 0 in {}", FieldName(field, f"{value:g}"), spec.type_text),
            why=f"the smallest value above 0 that it holds is {smallest:.3g}",
            fix="write 0 if that is meant, else a larger number, or cast the leaf first to a wider dtype",
            field=field,
        )


def check_axes(axis: int | tuple[int, ...] | None, field: str) -> None:
    """See that axes are named once each, whatever the leaf.

    Raises:
        PlanError: one is named twice, or none is.
    """
    if isinstance(axis, tuple) and (not axis or len(set(axis)) < len(axis)):
        raise PlanError(
            worded("{} names an axis twice", FieldName(field, ", ".join(map(str, axis))))
            if axis
            else worded("{} names no axis", FieldName(field)),
            fix="name every axis once",
            field=field,
        )


def resolve_axes(
    axis: int | tuple[int, ...], ndim: int, field: str, of: str = "a leaf"
) -> tuple[int, ...]:
    """Axes counted from the first; ``of`` says whose they are.

    Raises:
        PlanError: there are none, one is not there, or one is named twice.

    >>> resolve_axes((0, -1), 4, "axis")
    (0, 3)
    """
    given = (axis,) if isinstance(axis, int) else axis
    axes = tuple(n % ndim if -ndim <= n < ndim else n for n in given)
    if not axes or len(set(axes)) < len(axes) or any(not 0 <= n < ndim for n in axes):
        raise PlanError(
            worded(
                "{} does not fit {} with {}",
                FieldName(field, f"{', '.join(map(str, given))}"),
                of,
                counted(ndim, "axis", "axes"),
            ),
            why=f"axes are different numbers from {-ndim} to {ndim - 1}"
            if ndim
            else "it is a scalar",
            # not `where_ndim`, which is an exact count: it would leave out what fits as well
            fix=worded("choose others, or leave leaves without them out with {except}")
            if given and _needed(given) > ndim > 0
            else "name every axis once"
            if ndim
            else worded("leave it out with {except}"),
            field=field,
        )
    return axes


def _needed(axes: tuple[int, ...]) -> int:
    """How many axes a leaf needs to have these."""
    return max(n + 1 if n >= 0 else -n for n in axes)
