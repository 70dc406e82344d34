"""What a leaf is to a product that is added to a kernel: its axes, and the scale that it was made for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec

from surgery_cli.draft.effect import Effect, Keeps, Rearranges

Axis: TypeAlias = Literal["rank", "inputs", "outputs", "layers"]


class Factor(msgspec.Struct, frozen=True):
    """The A or B of a kernel, as the edit that made it says: no shape shows it. None: not known any more."""

    axes: tuple[Axis, ...] | None
    """What each axis counts; inputs are those that A alone has, outputs those of B."""
    scale: float | None
    """By what the product must be multiplied to be what was learnt."""

    def after(self, effects: Iterable[Effect]) -> Factor:
        """What is left of it after edits: a rearrangement leaves its scale alone, a cast all of it."""
        left = self
        for effect in effects:
            if isinstance(effect, Rearranges):
                left = Factor(None, left.scale)
            elif not isinstance(effect, Keeps):
                return Factor(None, None)
        return left
