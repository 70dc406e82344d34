"""Copies of the params beside the optimizer state (EMA params, target networks), which no edit carries along."""

from __future__ import annotations

from collections.abc import Mapping

from surgery_cli.draft.effect import Draws, Effect, is_new
from surgery_cli.draft.placeholders import slots_lines
from surgery_cli.draft.slots import Slot
from surgery_cli.optimizer.follow.refusals import POWER_K
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


def _nodes(copies: Mapping[LeafPath, Slot]) -> str:
    return ", ".join(sorted(f"'{node}'" for node in copies))


def _copying(copies: Mapping[LeafPath, Slot]) -> str:
    """How copies get the values that were drawn for their params, by the example of one leaf."""
    copy = next(iter(copies.values()))
    return (
        "edit the params alone, and after that in the same plan"
        f" `delete` '{copy.path}' and `copy` '{copy.param}' to it, and so on"
    )
