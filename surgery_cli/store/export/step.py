"""Builds a result in a format of other programs in its staging place."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from surgery_cli.settings.export import Export
from surgery_cli.store.export.companions import companions
from surgery_cli.store.export.contract import OutputFormat
from surgery_cli.store.filesystem.links import Linker
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.write.item_plan import ItemPlan
from surgery_cli.store.write.step import StepWriter


class ExportWriter(StepWriter):
    """What is written is the tree; beside it comes along what a folder of Hugging Face's has for its readers."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        plans: Mapping[str, ItemPlan],
        new: Path,
        linker: Linker,
        *,
        form: OutputFormat,
        request: Export,
    ) -> None:
        super().__init__(checkpoint, plans, new, linker, compact={})
        self._companions = companions(checkpoint, request, new).carried
        self.items = {name: form.writer(plan, new, request) for name, plan in plans.items()}

    def begin(self) -> None:
        """Make what the files are to stand in."""
        for writer in self.items.values():
            writer.begin()

    def finish(self) -> None:
        """Write what comes last."""
        for writer in self.items.values():
            writer.finish()
        for file in self._companions:
            self.linker.copy(file, self.new / file.name)
