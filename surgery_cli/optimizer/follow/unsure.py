"""Slots that an edit keeps because nobody knows how they follow: why, what comes of it, what settles it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from surgery_cli.draft.effect import Effect, Scales
from surgery_cli.optimizer.slots import Slot
from surgery_cli.tree.paths import LeafPath

_FAMILY: Final = "adam-family"
_B1: Final = 0.9
_B2: Final = 0.999
_HORIZON: Final = 200
"""Steps among which the extreme one is looked for."""


class Kept(msgspec.Struct):
    """The slots of one state that an edit keeps; ``reasons`` and ``remedies`` without repeats, in order."""

    owner: LeafPath
    count: int = 0
    names: dict[str, None] = {}
    reasons: dict[str, None] = {}
    remedies: dict[str, None] = {}
    may_be_adam: bool = False

    def add(self, slot: Slot, because: str, remedies: Sequence[str]) -> None:
        """One more slot, with why it is kept and what would settle it."""
        self.count += 1
        self.names[slot.name] = None
        self.reasons[because] = None
        if remedies:
            self.remedies["; or ".join(remedies)] = None
        is_moment = slot.is_second_moment and slot.power is None
        self.may_be_adam |= is_moment and slot.optimizer == _FAMILY

    def sentence(self, effect: Effect) -> str:
        """The note about an edit with this effect."""
        subject = (
            f"{self.count} slots of '{self.owner}' ({', '.join(self.names)}) are kept as they were"
        )
        if self.count == 1:
            (name,) = self.names
            subject = f"1 slot of '{self.owner}' ({name}) is kept as it was"
        parts = ["; ".join(self.reasons)]
        if self.may_be_adam and isinstance(effect, Scales):
            parts.append(f"if it is Adam behind clipping at most, {_coming_steps(effect.by)}")
        return f"{subject}: {'; '.join([*parts, *self.remedies])}"


def _coming_steps(factor: float | None) -> str:
    """What Adam does next with the old moments of params that were multiplied by ``factor``, in words.

    None: by an array, or a measurement, which has no one step to come.
    """
    if factor is None:
        return "the next steps are too large where the param shrank, and too small where it grew"
    size, step = extreme_step(abs(factor))
    turned = ", the first of them the wrong way" if factor < 0 else ""
    usual = f"b1 = {_B1} and b2 = {_B2}"
    if size > 1.05:
        return f"the next steps there are up to {size:.1f} times as large as usual (step {step}, {usual}){turned}"
    if size < 0.95:
        return (
            f"the next steps there are down to {size:.2g} times as large as usual ({usual}){turned}"
        )
    return f"the next steps there are about as large as usual{turned}"


def extreme_step(scale: float) -> tuple[float, int]:
    """Adam's largest step (its smallest if ``scale`` > 1) under old moments, in usual steps, and when it comes.

    The moments of gradients of one size and sign stand at 1 and 1; params times ``scale`` get gradients 1/scale.

    >>> extreme_step(0.1)
    (5.201..., 17)
    >>> round(extreme_step(10.0)[0], 3)
    0.104
    """

    def step(k: int) -> float:
        first = _B1**k + (1 - _B1**k) / scale
        second = _B2**k + (1 - _B2**k) / scale**2
        return float(first / second**0.5)

    choose = max if scale <= 1 else min
    extreme = choose(range(1, _HORIZON), key=step)
    return step(extreme), extreme
