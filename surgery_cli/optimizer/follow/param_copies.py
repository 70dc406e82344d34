"""Copies of the params beside the optimizer state (EMA params, target networks), which no edit carries along."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from surgery_cli.draft.effect import Draws, Effect, is_new
from surgery_cli.draft.placeholders import slots_lines
from surgery_cli.draft.recipe import Draft, Output
from surgery_cli.draft.slots import Slot
from surgery_cli.errors import Problem
from surgery_cli.optimizer.follow.refusals import POWER_K, half_told_beside
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.advice import InPlan, worded
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage


class Beside:
    """The copies of params that an edit changes: which it leaves alone, and which it names itself."""

    def __init__(self, effect: Effect) -> None:
        self._is_drawn, self._is_new = isinstance(effect, Draws), is_new(effect)
        self._alone: dict[LeafPath, Slot] = {}
        self._named: dict[LeafPath, Slot] = {}

    def add(self, copy: Slot, *, is_named: bool) -> None:
        """A copy of an edited param; one leaf of each tree is kept, as an example."""
        (self._named if is_named else self._alone).setdefault(copy.node, copy)

    def half_told(self, changed: Mapping[LeafPath, Output], draft: Draft) -> list[Problem]:
        """What is in the way where slots follow that somebody said, and a tree beside them that may be one stays."""
        moved = {
            path: draft.slots[path]
            for path, output in changed.items()
            if path in draft.slots and output.recipe is not draft.leaves[path].recipe
        }
        return half_told(moved.values(), self._alone.values(), worded("use {optimizer: keep}"))

    def notes(self) -> list[Consequence]:
        """For the preview: what stays, and what random values do, which every path has its own of."""
        found = []
        if self._alone:
            how = "name them to edit them, too"
            if self._is_drawn:
                how = f"named as well, they would draw other values; {_copying(self._alone)}"
            entry = {"power": "K", "fresh": "X"} if self._is_new else {"power": "K"}
            unsaid = {str(node): entry for node, copy in self._alone.items() if copy.assumed}
            if unsaid:
                line = InPlan(slots_lines(unsaid))
                start = " and X its initial value" if self._is_new else ""
                how = worded(
                    "{}; moments of an optimizer follow if you add {}, with {}{}",
                    how,
                    line,
                    POWER_K,
                    start,
                )
            found.append(
                Consequence(
                    DocsPage.OPTIMIZERS,
                    worded(
                        "copies of the edited params beside the optimizer state keep their values: {} ({})",
                        _nodes(self._alone),
                        how,
                    ),
                )
            )
        if self._named and self._is_drawn:
            found.append(
                Consequence(
                    DocsPage.OPTIMIZERS,
                    f"{_nodes(self._named)} and the params draw different values, as each path has its own:"
                    f" for equal ones, {_copying(self._named)}",
                )
            )
        return found


def half_told(moved: Iterable[Slot], staying: Iterable[Slot], or_else: str) -> list[Problem]:
    """A problem for each tree of ``staying`` of which nothing says what it is, beside one of the ``moved`` ones.

    ``or_else``: what may be done instead of saying it.
    No table has a state that keeps them, so that nothing but a word tells slots from copies there.
    """
    told = {(slot.node.parent, slot.root): slot for slot in moved if _is_by_word(slot)}
    unsaid = {slot.node: slot for slot in staying if slot.assumed is not None}
    pairs = ((told.get((slot.node.parent, slot.root)), slot) for slot in unsaid.values())
    return [half_told_beside(one, slot, or_else) for one, slot in pairs if one is not None]


def _is_by_word(slot: Slot) -> bool:
    return slot.in_optimizer and not slot.is_recognised and slot.relation != "hole"


def _nodes(copies: Mapping[LeafPath, Slot]) -> str:
    return ", ".join(sorted(f"'{node}'" for node in copies))


def _copying(copies: Mapping[LeafPath, Slot]) -> str:
    """How copies get the values that were drawn for their params, by the example of one leaf."""
    copy = next(iter(copies.values()))
    return (
        "edit the params alone, and after that in the same plan"
        f" `delete` '{copy.path}' and `copy` '{copy.param}' to it, and so on"
    )
