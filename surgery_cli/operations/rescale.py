"""Multiply leaves by a number or an array."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from msgspec import Meta

from surgery_cli.draft.effect import Effect, Scales
from surgery_cli.draft.recipe import Operand
from surgery_cli.operations.base import Kit, LeafOperation, Place, Scene
from surgery_cli.operations.factors import (
    ScaleAboveStart,
    ScaleByPower,
    find_factor,
    power_of,
    smallest_factor,
)
from surgery_cli.operations.settings import check_finite
from surgery_cli.operations.underflow import may_lose, refuse_lost_products
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec

if TYPE_CHECKING:
    from surgery_cli.optimizer.slots import Slot


class Rescale(LeafOperation, tag="rescale", kw_only=True, frozen=True):
    """Multiply leaves by a number, or by an array that broadcasts to them.

    A factor that would turn values into zeros, or infinities, of their dtype is refused.
    """

    by: Annotated[
        float | str,
        Meta(
            description="Factor, dimensionless: a number, or an array: `scale.npy`, `f.npz:ENTRY`, a source."
        ),
    ]

    example: ClassVar[str] = "- op: rescale\n  at: params/Dense_0/kernel\n  by: 0.5\n"
    path_fields: ClassVar[tuple[str, ...]] = ("by",)

    def output(self, spec: LeafSpec) -> LeafSpec:
        if not isinstance(self.by, str):
            check_finite(self.by, "by")
        return super().output(spec)

    def operands(self, path: LeafPath, spec: LeafSpec, scene: Scene) -> tuple[Operand, ...]:
        if not isinstance(self.by, str):
            return ()
        return (find_factor(self.by, path, spec, scene),)

    def compute(self, block: Any, kit: Kit, at: Place) -> Any:
        if isinstance(self.by, str):
            factor = kit.widened(at.operands["by"])
            new = kit.in_float32(block, lambda x: x * factor)
            smallest = smallest_factor(factor, kit)
            if may_lose(smallest, at.after.dtype):
                named = kit.apply(lambda x: kit.xp.where(factor == 0, 0, x), block)
                refuse_lost_products(named, new, smallest, kit, at)
            return new
        number = self.by
        if number and not 1e-37 < abs(number) < 1e38:  # no float32: let float64 carry the product
            new = kit.in_float32(block, lambda x: x * kit.xp.float64(number))
        else:
            new = kit.in_float32(block, lambda x: x * number)
        if number:
            refuse_lost_products(block, new, abs(number), kit, at)
        return new

    @property
    def effect(self) -> Effect:
        return Scales(None if isinstance(self.by, str) else self.by)

    def carry(self, slot: Slot) -> tuple[LeafOperation, ...] | None:
        if slot.relation in ("one", "hole"):
            return ()
        if slot.power is None or slot.start is None:
            return None
        if isinstance(self.by, str):
            if slot.relation not in ("same", "stacked") or slot.is_per_leaf:
                return None
            return (
                ScaleByPower(
                    by=self.by,
                    power=slot.power,
                    even=slot.is_even,
                    param=slot.param,
                    start=slot.start,
                    blur=slot.blur,
                    fresh=None if slot.is_second_moment or slot.is_params_like else slot.fresh,
                ),
            )
        factor = power_of(self.by, slot.power, even=slot.is_even)
        if factor and slot.start:
            return (
                ScaleAboveStart(by=factor, start=slot.start, even=slot.is_even, blur=slot.blur),
            )
        return (Rescale(by=factor),) if factor else None
