"""The finite guard: an edit must not make NaN or infinity out of finite values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from surgery_cli.draft.check import JudgedRefusal
from surgery_cli.draft.finite_bits import are_finite
from surgery_cli.draft.seen import NonFinite
from surgery_cli.tree.paths import LeafPath

if TYPE_CHECKING:
    import numpy as np

    Values = np.ndarray[Any, Any]


def non_finite(values: Values) -> Values | None:
    """Where values are NaN or infinite; None for dtypes that have no such values."""
    import numpy as np

    if values.dtype.kind in "biu" or values.dtype.name.startswith(("int", "uint")):
        return None
    if (
        values.dtype.name == "bfloat16"
    ):  # an exponent of ones; ml_dtypes takes ten times as long to say so
        bad: Values = np.equal(values.view(np.uint16) & 0x7F80, 0x7F80)
    else:
        bad = np.logical_not(np.isfinite(values))
    return bad


PART_ELEMENTS = 1 << 20
"""Values are looked at in parts of this size, so that the guard needs next to no memory beside them."""


def all_finite(values: Values) -> bool:
    """True if no value is NaN or infinite."""
    return all(map(_is_finite, _in_parts(values)))


def _is_finite(part: Values) -> bool:
    found = are_finite(part)
    if found is not None:
        return found
    bad = non_finite(part)
    return bad is None or not bad.any()


def _in_parts(values: Values) -> Iterator[Values]:
    flat = values.reshape(-1)
    return (flat[at : at + PART_ELEMENTS] for at in range(0, flat.size, PART_ELEMENTS))


def count_non_finite(values: Values) -> NonFinite:
    """Count NaN and infinities; nothing for dtypes that have no such values."""
    import numpy as np

    nan = bad = 0
    for part in _in_parts(values):
        if not _is_finite(part):
            found = non_finite(part)
            chosen = part[found]
            bad += chosen.size
            with np.errstate(invalid="ignore"):  # signaling NaN
                nan += int(np.isnan(chosen).sum())
    return NonFinite(nan, bad - nan)


def check_finite(
    path: LeafPath,
    values: Values,
    before: Callable[[], Values | None],
    who: Callable[[], str] = lambda: "the edit",
) -> None:
    """Refuse a block with a non-finite value where the source had a finite one; ``before`` is read only then.

    ``who`` made the values.

    Raises:
        ValueRefusal: the edit made such values.
    """
    import numpy as np

    if all_finite(values):
        return
    bad = non_finite(values)
    assert bad is not None
    old = before()
    was_bad = non_finite(old) if old is not None and old.shape == values.shape else None
    new = bad
    if was_bad is not None and old is not None:
        # an infinity that becomes NaN is lost as well; NaN alone differs from itself
        with np.errstate(invalid="ignore"):
            new = (bad & ~was_bad) | ((values != values) & (old == old))  # noqa: PLR0124
    count = int(new.sum())
    if count:
        raise JudgedRefusal(
            f"'{path}' would have {count} new non-finite value{'s' if count > 1 else ''}",
            why=f"{who()} makes NaN or infinity where the source is finite, or NaN of an infinity",
            fix="change the edit, or add `--allow-non-finite` if that is meant",
            path=str(path),
        )
