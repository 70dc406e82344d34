"""Leaves made of one number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from surgery_cli.draft.expression import Made, Recipe
from surgery_cli.draft.kernel import Kernel, Kit, Measurement, Place
from surgery_cli.draft.kernels.convert import Convert
from surgery_cli.errors import ValueRefusal
from surgery_cli.tree.dtypes import is_complex, is_floating
from surgery_cli.words.advice import worded


class Fill(Kernel, frozen=True, tag="fill"):
    """One number in every element."""

    value: bool | int | float

    def compute(self, blocks: Sequence[Any], kit: Kit, at: Place) -> Any:
        dtype = at.output.dtype
        if is_floating(dtype) or is_complex(dtype):
            number, wide = float(self.value), "float64"
        else:
            number, wide = int(self.value), "uint64" if dtype.startswith("uint") else "int64"
        filled = kit.apply(lambda: kit.xp.full(at.shape, number, dtype=wide))
        return kit.cast(filled, dtype)


class Mean(Measurement, frozen=True, tag="mean"):
    """The mean of a second moment. Second moments are nowhere negative, so that it measures their size."""

    def measure(self, blocks: Sequence[Any], kit: Kit, at: Place) -> Any:
        size = at.inputs[0].size
        return kit.in_float64(blocks[0], lambda x: kit.xp.sum(x, keepdims=True) / size)

    def finish(self, measured: Any, at: Place) -> Any:
        mean = float(measured.reshape(()))
        if not math.isfinite(mean):
            raise ValueRefusal(
                f"'{at.path}' has no mean to start from",
                why=f"its mean is {mean}: training has left values there that are not finite",
                fix=worded("use {optimizer: reset} for this edit"),
                path=str(at.path),
            )
        return measured


class Spread(Kernel, frozen=True, tag="spread"):
    """A measured number in every element: a usual step size for values that are new."""

    def compute(self, blocks: Sequence[Any], kit: Kit, at: Place) -> Any:
        (mean,) = blocks
        wide = "float64" if at.output.dtype == "float64" else "float32"
        one = kit.cast(kit.cast(mean, wide), at.output.dtype)
        if bool(kit.apply(_is_lost, mean, one)):
            raise ValueRefusal(
                f"the mean of '{at.path}' would become 0 in {at.output.dtype}",
                why=f"it is {float(mean.reshape(-1)[0]):.3g}, and training divides by its root",
                fix=worded(
                    "use {optimizer: keep} or `reset` for this edit, or cast the slot first to a wider dtype"
                ),
                path=str(at.path),
            )
        return kit.apply(lambda: kit.xp.broadcast_to(one, at.shape))


def _is_lost(mean: Any, one: Any) -> Any:
    """Whether a number that is not 0 has become 0."""
    return ((mean != 0) & (one == 0)).any()


def is_one_number(recipe: Recipe) -> bool:
    """True for a leaf that holds one number in all its elements, as is known before it is made."""
    while isinstance(recipe, Made) and recipe.spec.size and not isinstance(recipe.kernel, Fill):
        if len(recipe.inputs) != 1 or not isinstance(recipe.kernel, Spread | Convert):
            return False
        recipe = recipe.inputs[0]
        if recipe.spec.size == 1:
            return True
    return isinstance(recipe, Made) and isinstance(recipe.kernel, Fill)
