"""Values times factors: of a leaf, and of a slot that follows its param by a power of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from surgery_cli.draft.kernel import Kernel, Kit, Place
from surgery_cli.draft.kernels.left_of_start import left_of_start
from surgery_cli.draft.kernels.lost_values import may_lose, refuse_lost_products
from surgery_cli.errors import ValueRefusal
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.advice import worded

SIGNS_OF_POWERS: Final = (
    "squares and magnitudes keep their signs, what is odd in the gradients turns with them"
)
"""Why a negative factor is asked about."""


class Scale(Kernel, frozen=True, tag="scale"):
    """A leaf times a number."""

    by: float

    def is_identity(self, inputs: Sequence[LeafSpec], output: LeafSpec) -> bool:
        return self.by == 1

    def compute(self, blocks: Sequence[Any], kit: Kit, at: Place) -> Any:
        (block,) = blocks
        number = self.by
        if number and not 1e-37 < abs(number) < 1e38:  # no float32: let float64 carry the product
            new = kit.in_float32(block, lambda x: x * kit.xp.float64(number))
        else:
            new = kit.in_float32(block, lambda x: x * number)
        if number:
            refuse_lost_products(block, new, abs(number), kit, at)
        return new


class Multiply(Kernel, frozen=True, tag="multiply"):
    """A leaf times an array that broadcasts to it."""

    way_out: ClassVar[str] = ""
    """What to do where values would be lost."""

    def compute(self, blocks: Sequence[Any], kit: Kit, at: Place) -> Any:
        block, factor = blocks
        factor = kit.widened(factor)
        new = kit.in_float32(block, lambda x: x * factor)
        smallest = smallest_factor(factor, kit)
        if may_lose(smallest, at.output.dtype):
            named = kit.apply(lambda x: kit.xp.where(factor == 0, 0, x), block)
            refuse_lost_products(named, new, smallest, kit, at, fix=self.way_out)
        return new


class FollowFactor(Kernel, frozen=True, tag="follow_factor"):
    """A slot, but for what is left of its ``start``, times a power of its param's factor: ``by``, or the second input.

    Where an array's factor is 0 there is no old gradient to follow, whatever the power: moments of first order start
    again with the param (``fresh``), squares stay (None), so that the next steps there are no larger than usual. A copy
    of the param is 0 there, as the param is. See ``LeftOfStart`` for ``blur``.

    ``is_sign_open``: it is not known whether signs follow a factor below 0.

    Raises:
        ValueRefusal: a factor is below 0, and nothing says what becomes of signs; or values would be lost.
    """

    power: int
    is_even: bool = False
    start: float = 0.0
    blur: float = 0.0
    fresh: float | None = None
    is_sign_open: bool = False

    def is_identity(self, inputs: Sequence[LeafSpec], output: LeafSpec) -> bool:
        return self.power == 0 and self.is_even and self.fresh is None

    def compute(self, blocks: Sequence[Any], kit: Kit, at: Place) -> Any:
        block, base = blocks
        if self.is_sign_open and bool(kit.apply(lambda x: (x < 0).any(), base)):
            raise ValueRefusal(
                f"'{at.path}' has an even power, and nothing says whether its signs follow a negative factor",
                why=SIGNS_OF_POWERS,
                fix=worded(
                    "say `even: true` of its tree in `slots:` if it holds squares or magnitudes, or `even: false` if"
                    " its signs follow the gradients; or use {optimizer: keep}, `reset` or `warm`"
                ),
                path=str(at.path),
            )
        left = left_of_start(block, self.start, self.blur, kit, at, even=self.is_even)
        has_zeros = bool(kit.apply(lambda x: (x == 0).any(), base))

        def scaled(x: Any) -> Any:
            zero = base == 0
            size = kit.xp.abs(base.astype("float64")) + zero
            sign = 1.0 if self.is_even else kit.xp.where(base < 0, -1.0, 1.0)
            new = left.scaled(x, sign * size**self.power)
            if not has_zeros:
                return new
            return kit.xp.where(zero, x if self.fresh is None else self.fresh, new)

        new = kit.in_float32(block, scaled)
        followed = block
        if has_zeros and self.fresh is not None:
            followed = kit.apply(lambda x: kit.xp.where(base == 0, 0, x), block)
        refuse_lost_products(followed, new, smallest_factor(base, kit, self.power), kit, at)
        left.refuse_blurred(new, _largest_power(base, kit, self.power), at)
        return new


class ScaleAboveStart(Kernel, frozen=True, tag="scale_above_start"):
    """What a slot has gathered above what is left of its start, times a number; see ``LeftOfStart`` for ``blur``."""

    by: float
    start: float
    is_even: bool
    blur: float = 0.0

    def is_identity(self, inputs: Sequence[LeafSpec], output: LeafSpec) -> bool:
        return self.by == 1

    def compute(self, blocks: Sequence[Any], kit: Kit, at: Place) -> Any:
        (block,) = blocks
        left = left_of_start(block, self.start, self.blur, kit, at, even=self.is_even)
        new = kit.in_float32(block, lambda x: left.scaled(x, self.by))
        left.refuse_blurred(new, abs(self.by), at)
        return new


def power_of(factor: float, power: int, *, even: bool) -> float | None:
    """sign(factor)^odd · |factor|^power; None where a float holds no such number other than 0."""
    try:
        size = abs(factor) ** power
    except (OverflowError, ZeroDivisionError):
        return None
    if factor == 0 or size == 0:
        return None
    return size if even or factor > 0 else -size


def smallest_factor(factor: Any, kit: Kit, power: int = 1) -> float:
    """The size of the smallest |factor|^power over factors that are not 0; infinite if there are none.

    ``factor``: an array, [any shape].
    """
    far = math.inf if power > 0 else 0.0

    def extreme(x: Any) -> Any:
        size = kit.xp.where(x == 0, far, abs(x))
        return size.min() if power > 0 else size.max()

    base = float(kit.apply(extreme, factor))
    try:
        return math.inf if math.isnan(base) else base**power
    except (OverflowError, ZeroDivisionError):  # of a negative power: the product is far too large
        return math.inf


def _largest_power(factor: Any, kit: Kit, power: int) -> float:
    """The largest |factor|^power over factors that are not 0; 0 if there are none."""
    inverse = smallest_factor(factor, kit, -power)
    return 1 / inverse if inverse else math.inf
