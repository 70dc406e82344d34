"""Slots that an edit keeps because nobody knows how they follow: why, what comes of it, what settles it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from surgery_cli.draft.effect import Effect, Scales
from surgery_cli.draft.expression import LeafRef
from surgery_cli.draft.recipe import Draft
from surgery_cli.draft.slots import Slot
from surgery_cli.optimizer.follow.adam_steps import step_under_old_moments
from surgery_cli.optimizer.follow.clocks import standing
from surgery_cli.optimizer.follow.decays import decays_of
from surgery_cli.optimizer.follow.refusals import PER_LEAF, start_line
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.quantities import counted

_FAMILY: Final = "adam-family"


class Kept(msgspec.Struct):
    """The slots of one state that an edit keeps; ``reasons`` and ``remedies`` without repeats, in order.

    ``moment`` is one that may hold Adam's squares.
    """

    owner: LeafPath
    count: int = 0
    names: dict[str, None] = {}
    reasons: dict[str, None] = {}
    remedies: dict[tuple[str, ...], None] = {}
    moment: Slot | None = None

    def add(self, slot: Slot, because: str, remedies: Sequence[str]) -> None:
        """One more slot, with why it is kept and what would settle it."""
        self.count += 1
        self.names[slot.name] = None
        self.reasons[because] = None
        if remedies:
            self.remedies[tuple(remedies)] = None
        if slot.is_second_moment and slot.power is None and slot.optimizer == _FAMILY:
            self.moment = self.moment or slot

    def note(
        self, effect: Effect, draft: Draft, number: Callable[[LeafRef], float | None]
    ) -> Consequence:
        """What to say about an edit with this effect; ``number`` reads stored decays and step counts."""
        subject = (
            f"{self.count} slots of '{self.owner}' ({', '.join(self.names)}) are kept as they were"
        )
        if self.count == 1:
            (name,) = self.names
            subject = f"1 slot of '{self.owner}' ({name}) is kept as it was"
        parts = ["; ".join(self.reasons)]
        if self.moment is not None and isinstance(effect, Scales):
            by = effect.by if isinstance(effect.by, float | int) else None
            coming = _coming_steps(by, self.moment, draft, number)
            parts.append(f"if it is Adam behind clipping at most, {coming}")
        return Consequence(DocsPage.OPTIMIZERS, f"{subject}: {'; '.join([*parts, *self._ways()])}")

    def _ways(self) -> Iterator[str]:
        """What would settle them: what each needs, and once what settles all of them."""
        every = list(self.remedies)
        shared = [way for way in every[0] if all(way in ways for ways in every)] if every else []
        for ways in every if len(every) > 1 else ():
            if own := [way for way in ways if way not in shared]:
                yield "; or ".join(own)
        if shared:
            yield ("or " if len(every) > 1 else "") + "; or ".join(shared)


class KeptStates:
    """The slots that an edit keeps, by their states."""

    def __init__(self) -> None:
        self._found: dict[LeafPath, Kept] = {}

    def add_unsure(self, slot: Slot, stuck: Sequence[Slot], name: str) -> None:
        """A slot that stays because it, or others of its state that are ``stuck``, cannot follow the edit ``name``."""
        unsure = next((s for s in (slot, *stuck) if not s.is_settled), None)
        because = unsure.unsure_because if unsure else ""
        if not because and any(s.is_per_leaf for s in stuck):
            because = PER_LEAF
        because = because or f"no rule says how they follow '{name}'"
        self._of(slot).add(slot, because, unsure.settled_by if unsure else ())

    def add_without_start(self, slot: Slot) -> None:
        """A slot that stays because nobody knows the number at which the optimizer starts it."""
        self._of(slot).add(slot, "the initial value is not known", (start_line(slot),))

    def notes(
        self, effect: Effect, draft: Draft, number: Callable[[LeafRef], float | None]
    ) -> list[Consequence]:
        """What to say of them, as ``Kept.note``."""
        return [kept.note(effect, draft, number) for kept in self._found.values()]

    def _of(self, slot: Slot) -> Kept:
        owner = slot.node.parent or slot.node
        return self._found.setdefault(owner, Kept(owner))


def _coming_steps(
    factor: float | None, moment: Slot, draft: Draft, number: Callable[[LeafRef], float | None]
) -> str:
    """What Adam does next with the old moments of params that were multiplied by ``factor``, in words.

    None: by an array, or a measurement, which has no one step to come.
    """
    decays = decays_of(moment, draft, number)
    if factor is None or decays is None:
        return "the next steps are too large where the param shrank, and too small where it grew"
    clock = next(
        (
            path
            for path in moment.clocks
            if (clock := draft.clock_at(path)) is not None and clock.drives == "bias_correction"
        ),
        None,
    )
    count = standing(draft.leaves[clock], number) if clock is not None else None
    after = "after a long run" if count is None else f"with '{clock}' at {count:,.0f}"
    size, step = step_under_old_moments(factor, math.inf if count is None else count, decays)
    turned = ", the first of them the wrong way" if factor < 0 else ""
    coming = f"{after}, the next steps there are"
    if size > 1.05:
        return f"{coming} up to {size:.1f} times as large as usual (step {step}, {decays.words}){turned}"
    if size < 0.95:
        return f"{coming} down to {size:.2g} times as large as usual ({decays.words}){turned}"
    return f"{coming} about as large as usual{turned}"


def unfollowed(draft: Draft, policy: str | None, edited: Sequence[LeafPath]) -> list[Consequence]:
    """A note where a policy was asked for, and the optimizer state has nothing that could follow it."""
    if policy in (None, "keep") or not edited or any(path in draft.slots for path in edited):
        return []
    more = f" and {counted(len(edited) - 1, 'more leaf', 'more leaves')}" if len(edited) > 1 else ""
    return [
        Consequence(
            DocsPage.OPTIMIZERS,
            f"nothing in the optimizer state follows '{edited[0]}'{more}, so that `{policy}` changes nothing:"
            " `surgery inspect --optimizer` lists which params each slot is of",
        )
    ]
