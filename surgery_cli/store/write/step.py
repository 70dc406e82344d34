"""Builds the new checkpoint in its staging place: what is carried along, the items, the record."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from surgery_cli.draft.expression import LeafRef
from surgery_cli.draft.recipe import SOURCE, Draft, DraftItems
from surgery_cli.errors import CheckpointError, PlanError, Problem
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.links import Linker
from surgery_cli.store.filesystem.listing import Listing, holds_pytree
from surgery_cli.store.locate.items import STEP_METADATA, step_metadata
from surgery_cli.store.locate.location import Location
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.open.item import Item, PytreeItem, ReadBefore
from surgery_cli.store.orbax.arrays import ArrayStore, StoredArray
from surgery_cli.store.write.item import PytreeWriter, carry_item, open_writer
from surgery_cli.store.write.item_plan import ItemPlan, PlannedLeaf, planned
from surgery_cli.store.write.item_writer import ItemWriter
from surgery_cli.store.write.journal import Placed
from surgery_cli.store.write.sidecars import refuse_damaged_sidecars
from surgery_cli.tree.paths import LeafPath

RECORD = "surgery.json"


def plan_items(
    checkpoint: Checkpoint,
    draft: Draft,
    donors: Mapping[str, Checkpoint],
    has_digest: Callable[[LeafRef], bool] = lambda _: False,
) -> dict[str, ItemPlan]:
    """For every item of the new checkpoint, how its leaves come about; ``has_digest`` knows what is on record.

    Raises:
        PlanError: a leaf would stand in an item that does not exist.
    """
    made, sources = draft.items.made, _Sources(checkpoint, donors, has_digest)
    items = {name: checkpoint.items[made.get(name, name)] for name in (*checkpoint.items, *made)}
    leaves: dict[str, list[PlannedLeaf]] = {name: [] for name in items}
    strangers: list[Problem] = []
    for path, recipe in draft.leaves.items():
        try:
            name, inner = _place(checkpoint, draft.items, path)
        except KeyError:
            strangers.append(
                Problem(
                    f"'{path}' would stand in an item '{path[0]}' that does not exist",
                    why=f"the first key of a path names an item: {', '.join(items)}",
                    fix="move it below one of the items",
                    path=str(path),
                )
            )
            continue
        origin, origin_path = None, None
        if recipe.home is not None:
            origin, origin_path = sources.item_of(recipe.home)
        leaves[name].append(planned(items[name], inner, path, recipe, origin, origin_path, sources))
    if strangers:
        raise PlanError.of(strangers)
    if not draft.leaves and checkpoint.tree:
        raise PlanError(
            "no leaf would be left",
            why=f"the plan deletes all {len(checkpoint.tree)} leaves",
            fix="keep some; a checkpoint without leaves cannot be restored",
        )
    _refuse_root_lists(items, leaves)
    plans = {name: ItemPlan(item, leaves[name], name in made) for name, item in items.items()}
    for plan in plans.values():
        refuse_damaged_sidecars(plan)
    if made or not all(leaves.values()):
        _refuse_damaged_step(checkpoint.location)
    return plans


class _Sources(NamedTuple):
    """Where stored leaves are: in the checkpoint that is edited, or in others by name."""

    checkpoint: Checkpoint
    donors: Mapping[str, Any]
    has_digest: Callable[[LeafRef], bool]

    def item_of(self, ref: LeafRef) -> tuple[Item | None, LeafPath | None]:
        holder = self.checkpoint if ref.source == SOURCE else self.donors[ref.source]
        return holder.item_of(ref.path) if isinstance(holder, Checkpoint) else (None, None)

    def array_of(self, ref: LeafRef) -> tuple[ArrayStore, StoredArray] | None:
        holder = self.checkpoint if ref.source == SOURCE else self.donors[ref.source]
        return holder.array_of(ref.path) if isinstance(holder, Checkpoint) else None


def _refuse_damaged_step(location: Location) -> None:
    """Items come and go in ``_CHECKPOINT_METADATA``: it must be understood."""
    step = location.step_directory
    if step is None or not filesystem.is_file(step / STEP_METADATA):
        return
    _, why = step_metadata(step)
    if why:
        raise CheckpointError(
            f"'{step / STEP_METADATA}' is damaged, and an item would come or go",
            why=why,
            fix="copy the file again from where it was whole; or move it away, and name items where you restore",
        )


def _refuse_root_lists(items: Mapping[str, Item], leaves: Mapping[str, list[PlannedLeaf]]) -> None:
    """Without `_METADATA`, a list at the root of an item would be read back as a dict."""
    for name, item in items.items():
        if isinstance(item, PytreeItem) and item.sidecars.metadata is not None:
            continue
        was_list = any(path and isinstance(path[0], int) for path in item.tree)
        for leaf in leaves[name]:
            if leaf.path and isinstance(leaf.path[0], int) and not was_list:
                raise PlanError(
                    f"'{leaf.draft_path}' would stand in a list at the root",
                    why=f"'{item.directory.name}' has no `_METADATA`, and its layout keeps only dicts there",
                    fix="take out a node that is a dict, or the node above the list",
                    path=str(leaf.draft_path),
                )


def _place(checkpoint: Checkpoint, items: DraftItems, path: LeafPath) -> tuple[str, LeafPath]:
    """The item of the new checkpoint in which a path of the draft stands, and the path in it."""
    if not items.is_prefixed:
        return checkpoint.place(path)
    name = str(path[0])
    if name not in checkpoint.items and name not in items.made:
        raise KeyError(name)
    return name, LeafPath(path[1:])


def draft_items(checkpoint: Checkpoint) -> DraftItems:
    """What the draft has to know of the step's items."""
    location = checkpoint.location
    keeps_kinds = all(item.layout != "flax msgpack" for item in checkpoint.items.values())
    if location.folder_of_items is None:
        return DraftItems(keeps_kinds=keeps_kinds)
    return DraftItems(
        names=tuple(location.items),
        keeps_kinds=keeps_kinds,
        is_prefixed=location.prefix_items,
        taken=frozenset(filesystem.names(location.folder_of_items)),
        is_partial=any(holds_pytree(Listing.of(p)) for p in location.other_items.values()),
    )


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
    ) -> None:
        self.checkpoint = checkpoint
        self.plans = plans
        self.new = new
        self.linker = linker
        self.compact = compact
        self.items: dict[str, ItemWriter] = {}
        self._made = dict(made or {})
        self._as_step = as_step

    def begin(self) -> None:
        """Make the directories, carry along what no edit touches, place everything that is by reference."""
        step_directory = self._step_directory
        self._carry_around(self.checkpoint.location, step_directory)
        if self.dropped or self._made:
            self._record_items(step_directory)
        self._open_items()
        for writer in self.items.values():
            writer.begin()

    def go_on(self, placed: Placed) -> None:
        """In the place of ``begin``, where an earlier run has done that.

        Raises:
            WriteError: some of it has been removed since.
        """
        placed.tell(self.linker, self.new)
        self.linker.check_standing()
        self._open_items()
        for name, writer in self.items.items():
            writer.go_on(placed.raw_bytes[name])

    @property
    def placed(self) -> Placed:
        """What ``begin`` has done."""
        raw_bytes = {name: writer.raw_bytes for name, writer in self.items.items()}
        return Placed.of(self.linker, self.new, raw_bytes)

    def _open_items(self) -> None:
        for name, plan in self.plans.items():
            if name not in self.dropped:
                target = self._item_target(self.checkpoint.location, self._step_directory, name)
                compact = self.compact[name]
                self.items[name] = open_writer(plan, target, self.linker, compact=compact)

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
            for name in self.dropped:
                handlers.pop(name, None)
            filesystem.write(path, json.dumps(document).encode())

    @property
    def renamed(self) -> dict[str, str]:
        """Names of the new checkpoint that are other ones in the source."""
        location = self.checkpoint.location
        is_new = self._as_step is not None and location.step_name is not None
        return {self._step_name(location): str(location.step_name)} if is_new else {}

    def finish(self) -> None:
        for writer in self.items.values():
            writer.finish()
        self.linker.check_standing()

    @property
    def read_before(self) -> dict[str, ReadBefore]:
        """For every item, what whoever opens it need not parse again."""
        return {
            name: writer.read_before
            for name, writer in self.items.items()
            if isinstance(writer, PytreeWriter)
        }

    def _carry_around(self, location: Location, step: Path) -> None:
        """Copy what stands beside the edited items."""
        if location.shape == "root":
            filesystem.make_folder(self.new)
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
            filesystem.make_folder(step)
            items = {path.name for path in location.items.values()}
            for name in filesystem.names(folder):
                if name in items:
                    continue
                tree = self.checkpoint.unchosen.get(name)
                if isinstance(tree, PytreeItem):
                    carry_item(tree, step / name, self.linker)
                else:  # no tree, or one that cannot be read: byte for byte
                    self.linker.copy_tree(folder / name, step / name)

    def _step_name(self, location: Location) -> str:
        name = location.step_name or ""
        if self._as_step is None:
            return name
        digits = len(name) - len(name.rstrip("0123456789"))
        number = name[len(name) - digits :]
        width = len(number) if number.startswith("0") else 0
        return f"{name[: len(name) - digits]}{self._as_step:0{width}d}"

    @staticmethod
    def _item_target(location: Location, step: Path, name: str) -> Path:
        if location.folder_of_items is not None:
            return step / (location.items[name].name if name in location.items else name)
        return step
