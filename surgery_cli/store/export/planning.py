"""The one item of a result that is written in a format of other programs, and how its leaves come about."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, Final

from surgery_cli.draft.recipe import Draft, Output
from surgery_cli.store.export.contract import OutputFormat
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.open.item import Item
from surgery_cli.store.orbax.arrays import Window
from surgery_cli.store.write.item_plan import ItemPlan, PlannedLeaf, Way
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import TreeSpec

ITEM: Final = ""
"""The name of the item, in a result that is one tree."""


class NewItem:
    """An item of which nothing is there yet; nothing of it can be taken over."""

    dead_bytes = 0

    def __init__(self, form: OutputFormat) -> None:
        self.directory = Path(form.name)
        self.layout = f"new {form.name}"
        self.tree = TreeSpec()

    def read(self, path: LeafPath, window: Window | None = None) -> Any:
        """Nothing is there.

        Raises:
            KeyError: always.
        """
        raise KeyError(path)

    def fingerprint(self) -> str:
        """Of nothing."""
        return ""

    def identity(self, path: LeafPath) -> Hashable | None:
        """Nothing is there."""
        return None

    def array_of(self, path: LeafPath) -> None:
        """Nothing is there."""


def plan_export(
    draft: Draft, form: OutputFormat, sources: Mapping[str, Any]
) -> dict[str, ItemPlan]:
    """How the leaves of the new item come about, in the order in which they are written: all of them are made."""
    leaves = [_planned(path, output, sources) for path, output in draft.leaves.items()]
    return {ITEM: ItemPlan(NewItem(form), form.ordered(leaves))}


def _planned(path: LeafPath, output: Output, sources: Mapping[str, Any]) -> PlannedLeaf:
    way = Way.ENCODE if output.spec.has_array else Way.NONE
    origin: Item | None = None
    origin_path: LeafPath | None = None
    holder = None if output.home is None else sources[output.home.source]
    if isinstance(holder, Checkpoint) and output.home is not None:
        origin, origin_path = holder.item_of(output.home.path)
    return PlannedLeaf(path, path, output, way, path.text, origin, origin_path)
