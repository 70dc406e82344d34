"""Products that are too small for their dtype: values that matter do not become 0 without a word."""

from __future__ import annotations

from typing import Any, Final

from surgery_cli.errors import ValueRefusal
from surgery_cli.operations.base import Kit, Place

PARTS: Final = {"complex64": "float32", "complex128": "float64"}
"""The dtype of the parts of complex numbers."""

LEAST_COUNTED: Final = {"float64": 2.0**-1022, "float32": 2.0**-126, "bfloat16": 2.0**-126}
"""The smallest normal number of dtypes whose subnormals devices take for 0 anyway: what is smaller is no loss."""

ROUNDING: Final = {
    "float64": 2.0**-53,
    "float32": 2.0**-24,
    "bfloat16": 2.0**-8,
    "float16": 2.0**-11,
    "float8_e3m4": 2.0**-5,
    **dict.fromkeys(("float8_e4m3", "float8_e4m3fn", "float8_e4m3fnuz"), 2.0**-4),
    "float8_e4m3b11fnuz": 2.0**-4,
    **dict.fromkeys(("float8_e5m2", "float8_e5m2fnuz"), 2.0**-3),
}
"""By how much rounding to a dtype changes a number at most, relative to it."""


def may_lose(smallest: float, dtype: str) -> bool:
    """True if a factor of this size makes 0 of the smallest normal number of the dtype."""
    return smallest <= ROUNDING.get(PARTS.get(dtype, dtype), 1.0)


def refuse_lost_products(old: Any, new: Any, smallest: float, kit: Kit, at: Place) -> None:
    """Refuse zeros in ``new``, the products of ``old`` and factors of at least ``smallest`` in size, that are a loss.

    They are no loss beside other values of the block that are so much larger that rounding changes those by more.

    Raises:
        ValueRefusal: values that matter would become 0.
    """
    if not may_lose(smallest, at.after.dtype):
        return
    dtype = PARTS.get(at.after.dtype, at.after.dtype)

    def look(old: Any, new: Any) -> tuple[int, float, float]:
        size = abs(old)
        is_lost = (new == 0) & (size != 0) & (size >= LEAST_COUNTED.get(dtype, 0.0))
        if not is_lost.any():
            return 0, 0.0, 0.0
        finite = kit.xp.where(size < float("inf"), size, 0)
        return int(is_lost.sum()), float(kit.xp.where(is_lost, size, 0).max()), float(finite.max())

    count, greatest, largest = kit.apply(look, kit.widened(old), new)
    if not count or greatest <= largest * ROUNDING.get(dtype, 1.0):
        return
    where = "" if at.shape == at.before.shape else f" in the block at {list(at.start)} alone"
    raise ValueRefusal(
        f"'{at.path}' would be lost to zeros in {at.after.dtype}",
        why=f"{count} of its {old.size} values{where} are not 0 and would become 0, the largest {greatest:.3g}",
        fix="use a factor nearer to 1; if this leaf follows an edit of its param, `optimizer: warm` or `reset` for it",
        path=str(at.path),
    )
