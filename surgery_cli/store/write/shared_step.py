"""The new checkpoint, built by several processes: the first makes its directories, each some of its arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from surgery_cli.store.write.item import open_part, open_writer
from surgery_cli.store.write.item_plan import PlannedLeaf
from surgery_cli.store.write.item_writer import ItemWriter
from surgery_cli.store.write.raw_copies import Copies
from surgery_cli.store.write.step import StepWriter


class SharedStepWriter(StepWriter):
    """As ``StepWriter``, in process ``number`` of several; ``copies``: whose encoded bytes it copies, where any are."""

    def __init__(self, *given: Any, number: int, copies: Copies, **more: Any) -> None:
        super().__init__(*given, **more)
        self._number = number
        self._copies = copies

    def begin(self) -> None:
        """The first process does what is done once; the others write into what it has made."""
        if self._number == 0:
            super().begin()
            return
        self._open_items()
        for writer in self.items.values():
            writer.begin()

    def merge(self, count: int, is_ours: Callable[[PlannedLeaf], bool]) -> None:
        """Take in what all ``count`` processes have written; ``is_ours``: this one has written some of a leaf."""
        for writer in self.items.values():
            elsewhere = [leaf for leaf in writer.plan.computed if not is_ours(leaf)]
            writer.merge(range(1, count), elsewhere)

    def _open_items(self, opened: Callable[..., ItemWriter] = open_writer) -> None:
        opened = partial(open_part, self._number) if self._number else partial(opened, shared=True)
        super()._open_items(partial(opened, copies=self._copies))
