"""Counters beside slots of which nothing states whether they count their steps: those of a script's own optimizer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Final

from surgery_cli.draft.recipe import SOURCE, Draft, is_numeric
from surgery_cli.draft.slots import Slot
from surgery_cli.optimizer.follow.clocks import has_restarted
from surgery_cli.tree.dtypes import is_integer
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.advice import Text, worded
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.quantities import counted

_DRIVE_NOTHING: Final = ("nothing", "counter")

_SHOWN: Final = 4


class UntoldCounters:
    """The integers of a draft that may be counters, by the node in which they stand."""

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
        """Those beside the state of a slot; where it has none, beside what it stands in, and so on.

        Outside of the whole state only where that counts nothing: optax has a count in each part that needs one.
        """
        for depth in range(len(slot.node) - 1, -1, -1):
            node = LeafPath(slot.node[:depth])
            if node in self._known:
                return self._known[node]
            if node == slot.whole_state and any(one.is_below(node) for one in self._clocks):
                return []
        return []

    @cached_property
    def _clocks(self) -> list[LeafPath]:
        """The counters of which it is known what they drive."""
        leaves = self._draft.leaves
        return [path for path in leaves if self._draft.clock_at(path) and not self._is_open(path)]

    @cached_property
    def _known(self) -> dict[LeafPath, list[LeafPath]]:
        found: dict[LeafPath, list[LeafPath]] = {}
        for path, output in self._draft.leaves.items():
            if path not in self._draft.slots and _may_count(output.spec) and self._is_open(path):
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


def left_alone(slots: Iterable[Slot], draft: Draft) -> list[LeafPath]:
    """The counters that may be those of some of these slots and that no edit gave another number."""
    leaves = draft.leaves
    found = UntoldCounters(draft).of(slots)
    return [one for one in found if not leaves[one].edits and _is_own(one, draft)]


def restarting(paths: Sequence[LeafPath], draft: Draft) -> Text:
    """How counters are set to their start by name."""
    what = "it" if len(paths) == 1 else "one"
    if all(draft.leaves[path].spec.size == 1 for path in paths):
        return worded("`set` with {to: 0} restarts {}", what)
    return worded("`replace` with {with: 0} restarts {}", what)


def untold_counter_notes(draft: Draft) -> Iterator[Consequence]:
    """Where squares restart, and a counter goes on that nothing states to be theirs, or not to be."""
    states: dict[LeafPath, list[Slot]] = {}
    for slot in draft.slots.values():
        if is_untold(slot) and is_numeric(draft.leaves[slot.path].spec):
            states.setdefault(slot.node.parent, []).append(slot)
    for slots in states.values():
        gone = [one for one in slots if _may_hold_squares(one) and _has_been_reset(one, draft)]
        left = left_alone(gone, draft)
        if left:
            yield Consequence(DocsPage.COUNTERS, _said_of(gone, slots, left, draft))


def _said_of(
    gone: Sequence[Slot], slots: Sequence[Slot], left: Sequence[LeafPath], draft: Draft
) -> Text:
    restart = "1 slot restarts" if len(gone) == 1 else f"{counted(len(gone), 'slot')} restart"
    nodes = quoted(dict.fromkeys(slot.node for slot in gone), _SHOWN)
    stay = "is left as it is" if len(left) == 1 else "are left as they are"
    whose = "whether it counts" if len(left) == 1 else "which of them counts"
    said = (
        f"{restart} ({nodes}), and {quoted(left, _SHOWN)} {stay}, as nothing states {whose} their steps: if a bias"
        " correction goes by it, as Adam's does, the next steps there are several times as large as usual"
    )
    ways = []
    if all(_has_been_reset(slot, draft) for slot in slots):
        ways.append(restarting(left, draft))
    squares = [one for one in gone if one.power == -2 and not one.is_second_moment]
    if any(_is_by_edit(one, draft) for one in squares):
        said_so = f"`second_moment: true` for '{squares[0].node}' in `slots:`"
        ways.append(worded("{} leaves them their mean with {optimizer: warm}", said_so))
    return Text(said, *(part for way in ways for part in ("; ", way)))


def _is_by_edit(slot: Slot, draft: Draft) -> bool:
    """True if it was reset as its param has other values now."""
    param = draft.leaves.get(slot.param)
    return param is not None and bool(param.edits or not _is_own(slot.param, draft))


def _may_hold_squares(slot: Slot) -> bool:
    """True if a slot of which somebody said no more than its power may hold what a step is divided by the root of."""
    return slot.is_second_moment or slot.is_even or slot.power is None or slot.power % 2 == 0


def _has_been_reset(slot: Slot, draft: Draft) -> bool:
    return bool(draft.leaves[slot.path].edits) and has_restarted(slot, draft)


def _is_own(path: LeafPath, draft: Draft) -> bool:
    home = draft.leaves[path].home
    return home is not None and home.source == SOURCE


def _owner(counter: LeafPath) -> LeafPath:
    """The node of a state in which a counter stands; Flax NNX has it in a box."""
    return counter.parent.parent if counter[-1] == "value" else counter.parent


def _may_count(spec: LeafSpec) -> bool:
    """True for a number, or one for each member of an ensemble; random keys have no sign."""
    is_many = len(spec.shape) == 1 and not spec.dtype.startswith("u")
    return is_integer(spec.dtype) and (spec.size == 1 or is_many)
