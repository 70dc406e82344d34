"""How the leaves of every item of a new checkpoint come about, decided before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from surgery_cli.draft.expression import LeafRef
from surgery_cli.draft.recipe import SOURCE, Draft, DraftItems
from surgery_cli.errors import CheckpointError, PlanError, Problem
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import Listing
from surgery_cli.store.locate.items import STEP_METADATA, step_items, step_metadata
from surgery_cli.store.locate.location import Location
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.open.item import Item, PytreeItem
from surgery_cli.store.orbax.arrays import ArrayStore, StoredArray
from surgery_cli.store.write.item_plan import ItemPlan, PlannedLeaf, planned
from surgery_cli.store.write.sidecars import refuse_damaged_sidecars
from surgery_cli.store.write.step_trees import StepTrees
from surgery_cli.store.write.t5x import refuse_strangers_in_t5x
from surgery_cli.tree.paths import LeafPath


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
    _refuse_untold(items, leaves)
    step = StepTrees(checkpoint.items.values())
    plans = {name: ItemPlan(item, leaves[name], name in made, step) for name, item in items.items()}
    for plan in plans.values():
        refuse_damaged_sidecars(plan)
        refuse_strangers_in_t5x(plan)
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


def _refuse_untold(items: Mapping[str, Item], leaves: Mapping[str, list[PlannedLeaf]]) -> None:
    """Without `_METADATA`, what is no array is not there: an empty container, None, a string."""
    problems = [
        Problem(
            f"'{leaf.draft_path}' would be {leaf.spec.type_text}, and nothing that is stored could tell",
            why=f"'{item.directory.name}' has no `_METADATA`: its tree is told by the names of its arrays alone",
            fix=f"name '{leaf.draft_path}' itself, to remove it with all that is in it",
            path=str(leaf.draft_path),
        )
        for name, item in items.items()
        if isinstance(item, PytreeItem) and item.is_inferred
        for leaf in leaves[name]
        if not leaf.spec.has_array and leaf.path not in item.tree
    ]
    if problems:
        raise PlanError.of(problems)


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
    trees = step_items(Listing.of(location.folder_of_items)).pytrees
    return DraftItems(
        names=tuple(location.items),
        keeps_kinds=keeps_kinds,
        is_prefixed=location.prefix_items,
        taken=frozenset(filesystem.names(location.folder_of_items)),
        is_partial=any(name in trees for name in location.other_items),
    )
