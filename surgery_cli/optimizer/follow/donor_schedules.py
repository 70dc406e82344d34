"""Counters of schedules beside slots, here and in a donor: they set the size of steps, not what the slots hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Final

from surgery_cli.draft.expression import LeafRef
from surgery_cli.draft.recipe import Draft
from surgery_cli.draft.slots import Slot
from surgery_cli.optimizer.follow.clocks import standing
from surgery_cli.optimizer.follow.states import States
from surgery_cli.tree.paths import LeafPath

PARTS: Final = "inner_states"
"""The field of a partition: below it stand states of different params, by label."""


class Schedules:
    """The schedules of the checkpoint that is edited, after the edits so far, beside those of a donor."""

    def __init__(self, draft: Draft, donor: str, scene: States) -> None:
        self.draft, self._donor, self._scene = draft, donor, scene
        self._said: dict[tuple[LeafPath, LeafPath], list[str]] = {}

    def apart(self, pairs: Sequence[tuple[Slot, Slot]]) -> list[str]:
        """What is to be said of schedules beside these slots that stand elsewhere beside their counterparts."""
        found: dict[str, None] = {}
        for slot, other in pairs:
            nodes = slot.node, other.node
            if nodes not in self._said:
                self._said[nodes] = list(self._compared(slot, other))
            found.update(dict.fromkeys(self._said[nodes]))
        return list(found)

    def _compared(self, slot: Slot, other: Slot) -> Iterator[str]:
        here, there = dict(_beside(slot, self._here)), dict(_beside(other, self._there))
        for name in dict.fromkeys((*here, *there)):
            if name not in there:
                yield f"'{here[name]}' counts for a schedule, and none stands there"
            elif name not in here:
                yield f"'{there[name]}' counts for a schedule there, and none stands here"
            else:
                ours = standing(self.draft.leaves[here[name]], self._scene.number)
                theirs = self._scene.number(LeafRef(self._donor, there[name]))
                if ours is None or theirs is None:
                    yield f"what '{here[name]}' has counted for a schedule is not compared"
                elif ours != theirs:
                    yield f"'{here[name]}', of a schedule, has counted {theirs:,.0f} there and {ours:,.0f} here"

    @cached_property
    def _here(self) -> list[LeafPath]:
        clocks = ((path, self.draft.clock_at(path)) for path in self.draft.leaves)
        return [path for path, clock in clocks if clock is not None and clock.drives == "schedule"]

    @cached_property
    def _there(self) -> list[LeafPath]:
        clocks = self._scene.survey_of(self._donor).clocks
        return [path for path, clock in clocks.items() if clock.drives == "schedule"]


def _beside(slot: Slot, clocks: Iterable[LeafPath]) -> Iterator[tuple[LeafPath, LeafPath]]:
    """The clocks in the whole state of the slot's optimizer, by their names in it, but for those of other params."""
    whole = slot.whole_state
    for path in clocks:
        shared = 0
        while slot.node[shared : shared + 1] == path[shared : shared + 1] != ():
            shared += 1
        if path.is_below(whole) and path[:shared][-1:] != (PARTS,):
            yield LeafPath(path[len(whole) :]), path
