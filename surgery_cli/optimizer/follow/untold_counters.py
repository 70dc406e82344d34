"""Counters beside slots of which nothing states whether they count their steps: those of a script's own optimizer."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cached_property

from surgery_cli.draft.recipe import Draft, Output
from surgery_cli.draft.slots import Slot
from surgery_cli.tree.dtypes import is_integer
from surgery_cli.tree.paths import LeafPath

_DRIVE_NOTHING = ("nothing", "counter")


class UntoldCounters:
    """The single integers of a draft that may be counters, by the node in which they stand."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft

    def of(self, slots: Iterable[Slot]) -> list[LeafPath]:
        """Those that may count the steps of some of the slots, each once."""
        found: dict[LeafPath, list[LeafPath]] = {}
        for slot in slots:
            if slot.node.parent not in found and is_untold(slot):
                found[slot.node.parent] = self.beside(slot)
        return list(dict.fromkeys(path for paths in found.values() for path in paths))

    def beside(self, slot: Slot) -> list[LeafPath]:
        """Those beside the state of a slot; where it has none, beside what it stands in, and so on."""
        every = (LeafPath(slot.node[:depth]) for depth in range(len(slot.node) - 1, -1, -1))
        return next((self._known[node] for node in every if node in self._known), [])

    @cached_property
    def _known(self) -> dict[LeafPath, list[LeafPath]]:
        found: dict[LeafPath, list[LeafPath]] = {}
        for path, output in self._draft.leaves.items():
            if path not in self._draft.slots and _is_one_integer(output) and self._is_open(path):
                found.setdefault(_owner(path), []).append(path)
        return found

    def _is_open(self, path: LeafPath) -> bool:
        clock = self._draft.clock_at(path)
        return clock is None or clock.drives in _DRIVE_NOTHING


def counterpart(counter: LeafPath, slot: Slot, other: Slot) -> LeafPath | None:
    """Where a counter beside ``slot`` stands for one of another tree; None if that has no such place."""
    owner = _owner(counter)
    above = len(other.node) - (len(slot.node) - len(owner))
    return LeafPath((*other.node[:above], *counter[len(owner) :])) if above >= 0 else None


def is_untold(slot: Slot) -> bool:
    """True for a slot of a state of no known form: no counter is known to be its own."""
    return slot.in_optimizer and not (slot.is_recognised or slot.clocks or slot.relation == "hole")


def may_hold_squares(slot: Slot) -> bool:
    """True if a slot of which somebody said no more than its power may hold what a step is divided by the root of."""
    return slot.is_second_moment or slot.is_even or slot.power is None or slot.power % 2 == 0


def left_alone(paths: Collection[LeafPath], draft: Draft) -> list[LeafPath]:
    """Those that no edit gives another number."""
    return [path for path in paths if path in draft.leaves and not draft.leaves[path].edits]


def _owner(counter: LeafPath) -> LeafPath:
    """The node of a state in which a counter stands; Flax NNX has it in a box."""
    return counter.parent.parent if counter[-1] == "value" else counter.parent


def _is_one_integer(output: Output) -> bool:
    return is_integer(output.spec.dtype) and output.spec.size == 1
