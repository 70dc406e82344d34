"""Builds the new checkpoint in its staging place: what is carried along, the items, the record."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.links import Linker
from surgery_cli.store.locate.items import METRICS, step_metadata
from surgery_cli.store.locate.location import Location
from surgery_cli.store.locate.step_formats import renumbered
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.open.item import PytreeItem, ReadBefore
from surgery_cli.store.write.early_reads import Vouching
from surgery_cli.store.write.item import PytreeWriter, carrying, open_writer
from surgery_cli.store.write.item_plan import ItemPlan
from surgery_cli.store.write.item_writer import ItemWriter
from surgery_cli.store.write.journal import Placed
from surgery_cli.store.write.upload_buffer import UploadBuffer


class StepWriter:
    """The new checkpoint under construction."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        plans: Mapping[str, ItemPlan],
        new: Path,
        linker: Linker,
        *,
        compact: Mapping[str, bool],
        made: Mapping[str, str] | None = None,
        as_step: int | None = None,
        left_out: Collection[str] = (),
        buffered: bool = False,
    ) -> None:
        """``left_out``: names of items beside the trees that do not come along.

        ``buffered``: nobody needs to see in a bucket what is there of the arrays before all is.
        """
        self.checkpoint = checkpoint
        self.plans = plans
        self.new = new
        self.linker = linker
        self.compact = compact
        self.items: dict[str, ItemWriter] = {}
        self._made = dict(made or {})
        self._as_step = as_step
        self._left_out = left_out
        self._buffered = buffered
        self._unchosen: list[ItemWriter] = []

    @contextmanager
    def abandoned_on_failure(self) -> Iterator[None]:
        """What fails inside leaves nothing open or under way."""
        try:
            yield
        except BaseException:
            for writer in self.items.values():
                writer.abandon()
            raise

    def begin(self) -> None:
        """Make the directories, and place everything that is by reference."""
        self._make_folders()
        self._open_items(partial(open_writer, buffered=self._buffered))
        for writer in (*self.items.values(), *self._unchosen):
            writer.begin()

    def go_on(self, placed: Placed) -> None:
        """In the place of ``begin``, where an earlier run has done that.

        Raises:
            WriteError: some of it has been removed since.
            CheckpointError: what it has written cannot be read.
        """
        placed.tell(self.linker, self.new)
        self.linker.check_standing(self.new)
        self._open_items()
        for name, writer in self.items.items():
            writer.go_on(placed.raw_bytes[name])
        for writer in self._unchosen:
            writer.go_on(0)

    @property
    def placed(self) -> Placed:
        """What ``begin`` has done."""
        raw_bytes = {name: writer.raw_bytes for name, writer in self.items.items()}
        return Placed.of(self.linker, self.new, raw_bytes)

    def _open_items(self, opened: Callable[..., ItemWriter] = open_writer) -> None:
        for name, plan in self.plans.items():
            if name not in self.dropped:
                target = self._item_target(self.checkpoint.location, self._step_directory, name)
                compact = self.compact[name]
                self.items[name] = opened(plan, target, self.linker, compact=compact)
        self._unchosen = [
            carrying(tree, self._step_directory / path.name, self.linker, buffered=self._buffered)
            for path, tree in self._unchosen_trees()
        ]

    @property
    def _step_directory(self) -> Path:
        """The new step, or flat, or item directory or file."""
        location = self.checkpoint.location
        return self.new / self._step_name(location) if location.shape == "root" else self.new

    @property
    def dropped(self) -> list[str]:
        """Items of which no leaf is left: they go, as a save without them would have left them out."""
        return [name for name, plan in self.plans.items() if not plan.leaves]

    def _record_items(self, step_directory: Path) -> None:
        """In the step's metadata, made items get the handlers of those they are like; dropped ones lose theirs."""
        path = step_directory / "_CHECKPOINT_METADATA"
        if not filesystem.is_file(path):
            return
        document, _ = step_metadata(step_directory)
        handlers = document.get("item_handlers")
        if isinstance(handlers, dict):
            for name, like in self._made.items():
                if like in handlers:
                    handlers[name] = handlers[like]
            for name in (*self.dropped, *self._left_out):
                handlers.pop(name, None)
            if METRICS in self._left_out and METRICS in document:
                document[METRICS] = {}
            filesystem.write(path, json.dumps(document).encode())

    @property
    def renamed(self) -> dict[str, str]:
        """Names of the new checkpoint that are other ones in the source."""
        location = self.checkpoint.location
        is_new = self._as_step is not None and location.step_name is not None
        return {self._step_name(location): str(location.step_name)} if is_new else {}

    def finish(self) -> None:
        """Write the small files, and carry along what no edit touches."""
        for writer in (*self.items.values(), *self._unchosen):
            writer.finish()
        self._carry_around()
        if self.dropped or self._made or self._left_out:
            self._record_items(self._step_directory)
        self.linker.check_standing(self.new, anew=not self.buffers)  # those were just looked at

    @property
    def is_all_read(self) -> bool:
        """True if ``finish`` reads no value of a source, and copies what it copies as it was found."""
        items = self.items.values()
        return bool(self.buffers) and not any(writer.is_packing for writer in items)

    @property
    def read_before(self) -> dict[str, ReadBefore]:
        """For every item, what whoever opens it need not parse again."""
        return {
            name: writer.read_before
            for name, writer in self.items.items()
            if isinstance(writer, PytreeWriter)
        }

    @property
    def buffers(self) -> dict[str, UploadBuffer]:
        """For every item in a bucket, what its arrays were written through."""
        writers = self.items.items()
        return {name: writer.buffer for name, writer in writers if writer.buffer is not None}

    @property
    def vouching(self) -> dict[str, Vouching]:
        """For every item, what knows which of its arrays were read back already, where something does."""
        writers = ((name, writer.buffer or writer.early) for name, writer in self.items.items())
        return {name: found for name, found in writers if found is not None}

    def _make_folders(self) -> None:
        location = self.checkpoint.location
        if location.shape == "root":
            filesystem.make_folder(self.new)
        if location.folder_of_items is not None:
            filesystem.make_folder(self._step_directory)

    def _unchosen_trees(self) -> Iterator[tuple[Path, PytreeItem]]:
        """The trees of the step that no edit can touch; those that cannot be read are carried along byte for byte."""
        for name, tree in self.checkpoint.unchosen.items():
            if isinstance(tree, PytreeItem):
                yield self.checkpoint.location.other_items[name], tree

    def _carry_around(self) -> None:
        """Copy what stands beside the trees."""
        location = self.checkpoint.location
        if location.shape == "root":
            # plain files beside the steps may be needed to resume (a config); directories there are logs of their own
            strangers = [
                p
                for p in location.foreign
                if p.parent == location.root
                and filesystem.exists(p)
                and not filesystem.is_folder(p)
            ]
            for path in [*location.root_files, *strangers]:
                self.linker.copy_tree(path, self.new / path.name)
        folder = location.folder_of_items
        if folder is not None:
            apart = {*self._left_out, *(path.name for path in location.items.values())}
            apart |= {path.name for path, _ in self._unchosen_trees()}
            for name in sorted(location.in_step - apart):  # not what has come since
                self.linker.copy_tree(folder / name, self._step_directory / name)

    def _step_name(self, location: Location) -> str:
        name = location.step_name or ""
        if self._as_step is None:
            return name
        return renumbered(name, self._as_step, location.step_names)

    @staticmethod
    def _item_target(location: Location, step: Path, name: str) -> Path:
        if location.folder_of_items is not None:
            return step / (location.items[name].name if name in location.items else name)
        return step
