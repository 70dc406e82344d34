"""Results that are too small for their dtype: values that count do not become 0 without a word."""

from __future__ import annotations

from typing import Any, Final

from surgery_cli.draft.kernel import Kit, Place
from surgery_cli.errors import ValueRefusal
from surgery_cli.tree.dtypes import COMPLEX_PARTS, FLOATS, is_complex
from surgery_cli.words.advice import worded

LEAST_COUNTED: Final = {
    name: FLOATS[name].least_normal for name in ("float64", "float32", "bfloat16")
}
"""The smallest normal number of dtypes whose subnormals devices take for 0 anyway: what is smaller is no loss."""


def may_lose(smallest: float, dtype: str) -> bool:
    """True if a factor of this size makes 0 of the smallest number of the dtype that counts."""
    part = COMPLEX_PARTS.get(dtype, dtype)
    return smallest <= (FLOATS[part].rounding if part in LEAST_COUNTED else 0.5)


def refuse_lost_products(
    old: Any, new: Any, smallest: float, kit: Kit, at: Place, *, fix: str = ""
) -> None:
    """Refuse zeros in ``new``, the products of ``old`` and factors of at least ``smallest`` in size, that are a loss.

    Raises:
        ValueRefusal: values that count would become 0; ``fix`` is what to do instead.
    """
    if may_lose(smallest, at.output.dtype):
        fix = fix or (
            worded(
                "use a factor nearer to 1, or cast the leaf to a wider dtype first; if it follows an edit of"
                " its param, {optimizer: warm} or `reset` for it"
            )
        )
        kit.apply(lambda old, new: refuse_lost(old, new, at, fix=fix), kit.widened(old), new)


def refuse_lost(old: Any, new: Any, at: Place, *, fix: str, least: float | None = None) -> None:
    """Refuse zeros in ``new`` for values of ``old`` that count, by the values of this block.

    In a block without negative values all count: an optimizer divides by the roots of second moments. Elsewhere those
    do that are larger than what rounding takes from the largest. Below ``least`` (that of the leaf's dtype) none does.

    Raises:
        ValueRefusal: values that count would become 0; ``fix`` is what to do instead.
    """
    dtype = COMPLEX_PARTS.get(at.output.dtype, at.output.dtype)
    is_zero = new == 0
    if not is_zero.any():
        return
    size = abs(old)
    lost = (
        is_zero
        & (size != 0)
        & (size >= (LEAST_COUNTED.get(dtype, 0.0) if least is None else least))
    )
    count = int(lost.sum())
    if not count:
        return
    # -0.0 is not below 0; complex numbers have no sign
    if is_complex(at.output.dtype) or bool((old < 0).any()):
        largest = float(size[size < float("inf")].max())
        if float(size[lost].max()) <= largest * FLOATS[dtype].rounding:
            return
    where = "" if at.is_all else f" in the block at {list(at.start)} alone"
    raise ValueRefusal(
        f"'{at.path}' does not fit {at.output.dtype}: values would be lost to zeros",
        why=f"{count} of its {old.size} values{where} are not 0 and would become 0, the smallest"
        f" {float(size[lost].min()):.3g}",
        fix=fix,
        path=str(at.path),
    )


def rounded_sum(total: Any, kit: Kit, at: Place) -> Any:
    """A sum in float64 as what the leaf holds, rounded to nearest even once.

    Raises:
        ValueRefusal: values that count would become 0.
    """
    new = kit.cast(total, at.output.dtype)
    fix = worded("cast the leaf to a wider dtype first, or leave it out with {except}")
    kit.apply(lambda: refuse_lost(total, new, at, fix=fix, least=0.0))
    return new
