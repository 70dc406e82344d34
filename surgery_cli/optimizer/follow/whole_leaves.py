"""Params of which an edit makes other leaves, where the optimizer goes by norms or the like of whole leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import Final

from surgery_cli.draft.slots import Slot
from surgery_cli.optimizer.follow.rearranged import Mapped, Move
from surgery_cli.optimizer.knowledge.factories import OVER_LEAVES
from surgery_cli.optimizer.knowledge.kinds import by_name
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.series import folded

_TRIED: Final = (
    "the optimizer, tried out, makes an update of more of a leaf than of its own element"
)
_UNSAID: Final = f"{OVER_LEAVES['adafactor']}, unless its settings say otherwise"


class WholeLeaves:
    """What one edit makes of the leaves that the updates of optimizers go by."""

    def __init__(self) -> None:
        self._found: dict[str, dict[LeafPath, None]] = {}
        self._by_axes: set[str] = set()
        self._regrouped: set[str] = set()
        """The ways by which elements go with others now; a matrix that is only turned may be updated as it was."""

    def see(self, slots: Iterable[Slot], by: Mapped, moves: Mapping[LeafPath, Move]) -> None:
        """Look at the slots of one param in one state. An edit that adds elements, or takes some out, is another."""
        sizes = (prod(spec.shape) for spec in by.before)
        if not by.map.regroups and sum(sizes) != prod(by.after.shape):
            return
        for slot in slots:
            if slot.in_optimizer and slot.relation != "hole":
                clause = self._clause(slot, by, is_model=moves[slot.path].is_model)
                if clause:
                    self._found.setdefault(clause, {})[slot.param] = None

    def _clause(self, slot: Slot, by: Mapped, *, is_model: bool) -> str:
        """Why updates go by another leaf now; '' if they do not, as far as it is known."""
        kinds = [by_name().get(name) for name in slot.kinds]
        known = kinds[0] if kinds and all(kind and kind.over_leaf for kind in kinds) else None
        regroups, factory = _regroups(by), OVER_LEAVES.get(slot.factory, "")
        if factory and regroups:
            return factory
        if known is not None and known.name == "factored":
            is_open = regroups and slot.over_leaf is None and not slot.factory
            return known.over_leaf if is_model else _UNSAID if is_open else self._tried(slot, by)
        if known is not None and (regroups or (known.over_axes and _has_other_axes(by))):
            if known.over_axes:
                self._by_axes.add(known.over_leaf)
            if regroups:
                self._regrouped.add(known.over_leaf)
            return known.over_leaf
        return self._tried(slot, by)

    def _tried(self, slot: Slot, by: Mapped) -> str:
        return _TRIED if slot.over_leaf and _regroups(by) else ""

    def notes(self, is_apart: Callable[[LeafPath], bool]) -> list[Consequence]:
        """A note for each way to go by leaves; ``is_apart``: a state that goes by axes leaves out the param now."""
        found = []
        for clause, params in self._found.items():
            named = [p for p in params if clause not in self._by_axes or not is_apart(p)]
            if named:
                are, leaves, them = (
                    ("is", "another leaf", "it")
                    if len(named) == 1
                    else ("are", "other leaves", "them")
                )
                is_open = clause in self._by_axes and clause not in self._regrouped
                may = "may " * (is_open or clause in (_TRIED, _UNSAID))
                found.append(
                    Consequence(
                        DocsPage.REARRANGED_SLOTS,
                        f"{clause}, and {quoted(folded(map(str, named)), 3)} {are} {leaves} now: the next updates of"
                        f" {them} {may}differ, whatever becomes of slots. Train in the form of before to keep them, or"
                        " look at the learning rate",
                    )
                )
        return found


def _regroups(by: Mapped) -> bool:
    """True if elements of a leaf are in one with others now, or apart; a stack of a single one has what that had."""
    is_one = len(by.before) == 1 and prod(by.before[0].shape) == prod(by.after.shape)
    return by.map.regroups and not is_one


def _has_other_axes(by: Mapped) -> bool:
    """True if an axis is not where it was, or is no longer one of its own."""
    leaf = by.before[0]
    places = [by.map.along(axis, leaf) for axis in range(len(leaf.shape))]
    return len(leaf.shape) != len(by.after.shape) or any(
        place is None or place[1] != axis for axis, place in enumerate(places)
    )
