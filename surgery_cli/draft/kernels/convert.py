"""Values in another dtype, rounded once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from surgery_cli.draft.expression import Recipe, made
from surgery_cli.draft.finite_bits import are_finite
from surgery_cli.draft.kernel import Kernel, Kit, Place
from surgery_cli.draft.kernels.lost_values import LEAST_COUNTED, refuse_lost
from surgery_cli.errors import PlanError, ValueRefusal
from surgery_cli.tree.dtypes import (
    COMPLEX_PARTS,
    family,
    integer_range,
    is_finite_only,
    is_floating,
    is_integer,
    part_of,
)
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.advice import worded

_WAY_OUT: Final = worded(
    "use bfloat16, leave the leaf out with {except} (an optimizer state as a whole), or `cast` with"
    " {underflow: keep}"
)


class Convert(Kernel, frozen=True, tag="convert"):
    """A leaf in the dtype of the output; what it does not hold is refused."""

    keeps_zeros: bool = False
    """True if values that become 0 are not looked for."""

    def is_identity(self, inputs: Sequence[LeafSpec], output: LeafSpec) -> bool:
        return inputs[0].dtype == output.dtype

    def is_rounding(self, inputs: Sequence[LeafSpec], output: LeafSpec) -> bool:
        is_elementwise = is_floating(output.dtype) and inputs[0].shape == output.shape
        return is_elementwise and self._least_lost(inputs[0], output) is None

    def _least_lost(self, old: LeafSpec, new: LeafSpec) -> float | None:
        """The smallest number that must not become 0; None if none of them can, or they may."""
        if self.keeps_zeros or is_integer(new.dtype):
            return None
        part, to = (COMPLEX_PARTS.get(dtype, dtype) for dtype in (old.dtype, new.dtype))
        least = LEAST_COUNTED.get(part, 0.0)
        return least if least < LEAST_COUNTED.get(to, 1.0) else None

    def compute(self, blocks: Sequence[Any], kit: Kit, at: Place) -> Any:
        (block,), to = blocks, at.output.dtype
        new = kit.cast(block, to)
        if count := _count_lost(block, new, kit):
            where = "" if at.is_all else f" in the block at {list(at.start)} alone"
            raise ValueRefusal(
                f"'{at.path}' does not fit {to}",
                why=f"{count} of its values{where} lie beyond {_limits(to)}"
                + (", and it has no infinities" if is_finite_only(to) else ""),
                fix=worded(
                    "choose a wider dtype, rescale the leaf first, or leave it out with {except}"
                ),
                path=str(at.path),
            )
        if (least := self._least_lost(at.inputs[0], at.output)) is not None:
            kit.apply(partial(refuse_lost, at=at, fix=_WAY_OUT, least=least), block, new)
        return new


def _count_lost(old: Any, new: Any, kit: Kit) -> int:
    """How many values the new dtype does not hold."""
    if is_integer(new.dtype.name):
        lost = kit.apply(_wrapped, old, new)
    elif are_finite(new):
        return 0
    else:
        lost = kit.apply(_overflowed, old, new)
    return int(lost.sum()) if lost.any() else 0  # a sum takes ten times as long


def converted(recipe: Recipe, after: LeafSpec, path: LeafPath) -> Recipe:
    """A leaf of another dtype becomes ``after``, whatever rule said so.

    Raises:
        PlanError: one is floating, integer or complex and the other is not.
    """
    if family(recipe.spec.dtype) != family(after.dtype):
        raise PlanError(
            f"{recipe.spec.type_text} does not become {after.type_text}",
            why="a cast stays among floats, among integers, or among complex numbers",
        )
    return made(Convert(), (recipe,), after, path)


def _wrapped(old: Any, new: Any) -> Any:
    """Where integers came out as others: they do not come back, or their sign has changed."""
    return (new.astype(old.dtype) != old) | ((new < 0) != (old < 0))


def _overflowed(old: Any, new: Any) -> Any:
    """Where finite numbers became infinite or NaN, or infinities NaN (some dtypes have no infinities)."""
    bad = _is_not_finite(new)
    if not bad.any():
        return bad
    return (bad & ~_is_not_finite(old)) | ((new != new) & (old == old))  # noqa: PLR0124 - NaN alone differs from itself


def _is_not_finite(values: Any) -> Any:
    """Only there x - x is not 0, in NumPy as in JAX; bfloat16 tells by its exponent, ten times as fast."""
    if values.dtype.name == "bfloat16":
        return (values.view("uint16") & 0x7F80) == 0x7F80
    return (values - values) != 0


def _limits(dtype: str) -> str:
    """The limits of a dtype as text."""
    if is_integer(dtype):
        return "{} … {}".format(*integer_range(dtype))
    return f"±{part_of(dtype).largest:g}"
