"""The finite guard: an edit must not make NaN or infinity out of finite values."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from surgery_cli.errors import ValueRefusal
from surgery_cli.tree.paths import LeafPath

if TYPE_CHECKING:
    import numpy as np

    Values = np.ndarray[Any, Any]


def non_finite(values: Values) -> Values | None:
    """Where values are NaN or infinite; None for dtypes that have no such values."""
    import numpy as np

    if values.dtype.kind in "biu" or values.dtype.name.startswith(("int", "uint")):
        return None
    bad: Values = ~np.isfinite(values)
    return bad


def check_finite(path: LeafPath, values: Values, before: Callable[[], Values | None]) -> None:
    """Refuse a block with a non-finite value where the source had a finite one; ``before`` is read only then.

    Raises:
        ValueRefusal: the edit made such values.
    """
    bad = non_finite(values)
    if bad is None or not bad.any():
        return
    old = before()
    was_bad = non_finite(old) if old is not None and old.shape == values.shape else None
    new = bad if was_bad is None else bad & ~was_bad
    count = int(new.sum())
    if count:
        raise ValueRefusal(
            f"'{path}' would have {count} new non-finite value{'s' if count > 1 else ''}",
            why="the edit makes NaN or infinity where the source is finite",
            fix="change the edit, or add `--allow-non-finite` if that is meant",
            path=str(path),
        )
