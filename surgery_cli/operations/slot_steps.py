"""What the policies `reset` and `warm` do to a twin in the optimizer state; not in the table of operations."""

from __future__ import annotations

import math
from typing import Any

from surgery_cli.draft.effect import Effect, Sets, Shifts
from surgery_cli.errors import ValueRefusal
from surgery_cli.operations.base import Cut, Kit, LeafOperation, Place
from surgery_cli.operations.settings import check_fits
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.advice import worded


class FillFresh(LeafOperation, tag="fill_fresh", kw_only=True, frozen=True):
    """Put the optimizer's own initial value into every element of a slot."""

    value: float

    def output(self, spec: LeafSpec) -> LeafSpec:
        super().output(spec)
        check_fits(self.value, spec, "fill")
        return spec

    @property
    def effect(self) -> Effect:
        return Sets(self.value)

    def compute(self, block: Any, kit: Kit, at: Place) -> Any:
        filled = kit.apply(lambda: kit.xp.full(at.shape, self.value, dtype="float64"))
        return kit.cast(filled, at.after.dtype)


class FillMean(LeafOperation, tag="fill_mean", kw_only=True, frozen=True):
    """Put the mean of a second moment into every element: a usual step size for values that are new.

    Second moments are nowhere negative, so the mean measures their size. A mean that is not finite is refused.
    """

    @property
    def cut(self) -> Cut:
        return Cut.MEASURED

    def measure(self, block: Any, kit: Kit, at: Place) -> Any:
        size = at.before.size
        return kit.in_float64(block, lambda x: kit.xp.sum(x, keepdims=True) / size)

    def finish(self, measured: Any, path: LeafPath) -> Any:
        mean = float(measured.reshape(()))
        if not math.isfinite(mean):
            raise ValueRefusal(
                f"'{path}' has no mean to start from",
                why=f"its mean is {mean}: training has left values there that are not finite",
                fix=worded("use {optimizer: reset} for this edit"),
                path=str(path),
            )
        return measured

    @property
    def effect(self) -> Effect:
        return Shifts()

    def filled(self, before: float | None) -> float | None:
        return before

    def compute(self, block: Any, kit: Kit, at: Place) -> Any:
        mean = at.window(at.measured)
        new = kit.in_float32(block, lambda x: kit.xp.broadcast_to(mean.astype(x.dtype), x.shape))
        if bool(kit.apply(_is_lost, mean, new)):
            raise ValueRefusal(
                f"the mean of '{at.path}' would become 0 in {at.after.dtype}",
                why=f"it is {float(mean.reshape(-1)[0]):.3g}, and training divides by its root",
                fix=worded(
                    "use {optimizer: keep} or `reset` for this edit, or cast the slot first to a wider dtype"
                ),
                path=str(at.path),
            )
        return new


def _is_lost(mean: Any, new: Any) -> Any:
    """Whether elements that are all the same number, which is not 0, have become 0."""
    return ((mean != 0) & (new.reshape(-1)[:1] == 0)).any()
