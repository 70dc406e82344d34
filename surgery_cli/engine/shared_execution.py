"""A process's share of a run, in two halves: between them all processes join what they have seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from surgery_cli.engine.checked_source import CheckedSource
from surgery_cli.engine.executed import Executed
from surgery_cli.engine.execution import Execution
from surgery_cli.engine.leaf_in_work import LeafInWork
from surgery_cli.engine.shares import Share
from surgery_cli.store.write.item_plan import PlannedLeaf
from surgery_cli.store.write.item_writer import ItemWriter


class SharedExecution(Execution):
    """As ``Execution``, of what is in this process's ``share``; ``judge`` and ``write`` stand for ``run``."""

    def __init__(self, *given: Any, share: Share, **more: Any) -> None:
        super().__init__(*given, **more)
        self.share = share

    def judge(self, writers: Sequence[ItemWriter] = ()) -> None:
        """Look at what nobody writes as it stands; nothing is refused before all that was seen is joined."""
        with self._stream.working():
            left = self.checks.left(writers)
            self._judge(self.share.of(left, [watched.recipe.spec.bytes for watched in left]))

    def write(self, writers: Sequence[ItemWriter]) -> Executed:
        """Write the share's blocks.

        Raises:
            SurgeryError: what ``run`` raises.
        """
        with self._stream.working():
            self._write(writers)
        return self.executed

    @property
    def checked(self) -> Mapping[str, CheckedSource]:
        """The sources that are read, by name."""
        return self._sources

    def _write_leaf(self, writer: ItemWriter, planned: PlannedLeaf) -> None:
        if self.share.makes(planned):
            super()._write_leaf(writer, planned)
        elif planned.is_read_whole:
            self.checks.of(planned.recipe)  # who makes it sees it

    def _leaf(self, planned: PlannedLeaf) -> LeafInWork:
        leaf = super()._leaf(planned)
        leaf.cut_to(self.share.blocks(planned, leaf.windows))
        return leaf
