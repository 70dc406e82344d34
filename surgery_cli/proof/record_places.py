"""Where the record of a checkpoint stands, of which trees it can be, and how it names their leaves."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from msgspec import UNSET, UnsetType

from surgery_cli.errors import CheckpointError
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import Listing, is_tree
from surgery_cli.store.filesystem.names import RECORD
from surgery_cli.store.locate.items import step_items
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.write.commit_marks import companion_of, record_beside
from surgery_cli.tree.paths import LeafPath


def record_path(checkpoint: Checkpoint) -> Path:
    """Where the record of a checkpoint stands: in the step or flat directory, beside a file or a bare directory.

    Where one stands in a bare directory, that lost the metadata which it had when it was recorded.
    """
    place = recorded_place(checkpoint)
    return place / RECORD if _stands_inside(checkpoint, place) else record_beside(place)


def new_record_path(checkpoint: Checkpoint) -> Path:
    """Where a record of a checkpoint is written: as it stands, but under no name that it had in an older release."""
    place = recorded_place(checkpoint)
    return place / RECORD if _stands_inside(checkpoint, place) else companion_of(place)


def _stands_inside(checkpoint: Checkpoint, place: Path) -> bool:
    return filesystem.is_folder(place) and (
        filesystem.is_file(place / RECORD) or not is_inferred(checkpoint)
    )


def check_record_place(checkpoint: Checkpoint, made: Iterable[str] = ()) -> None:
    """See that a record can stand in the checkpoint, or in what becomes of it with the items that are ``made``.

    Raises:
        CheckpointError: an item of the step has its name.
    """
    is_taken = filesystem.is_folder(record_path(checkpoint))
    check_item_names([*made, RECORD] if is_taken else made)


def check_item_names(names: Iterable[str]) -> None:
    """See that no item stands where the record of its step would.

    Raises:
        CheckpointError: one does.
    """
    if RECORD in names:
        raise CheckpointError(
            f"the item '{RECORD}' stands where the record of a run would",
            why="every result, and every seal, has its record in a file of that name in the step",
            fix="give the item another name",
        )


def recorded_place(checkpoint: Checkpoint) -> Path:
    """What a record is about: the step, the flat directory or the file, whichever item of it was chosen."""
    return checkpoint.location.step_directory or checkpoint.location.root


def is_inferred(checkpoint: Checkpoint) -> bool:
    """True if readers infer the structure from the directory's listing, where a stray file would be a leaf."""
    return any(
        item.layout.startswith("per-leaf")
        and not filesystem.exists(item.directory / "_METADATA")
        and not filesystem.exists(item.directory / "checkpoint")
        for item in checkpoint.items.values()
    )


def record_key(checkpoint: Checkpoint, path: LeafPath) -> str:
    """How a record names a leaf: the path's unambiguous spelling, from the item's name on in a step of several trees.

    The record lies in the step, so the key does not depend on which item was chosen.
    """
    name, inner = checkpoint.place(path)
    return LeafPath((name, *inner)).spelling if has_several_trees(checkpoint) else inner.spelling


@lru_cache(maxsize=256)  # the members of an average are asked in turn
def has_several_trees(checkpoint: Checkpoint) -> bool:
    """True if the step that holds the record has several trees."""
    return len(trees_of_step(checkpoint)) > 1


def trees_of_step(checkpoint: Checkpoint) -> list[str]:
    """The names of all trees of the step that holds the record, chosen or not."""
    location = checkpoint.location
    if location.shape == "item" and location.step_directory is not None:
        return list(step_items(Listing.of(location.step_directory)).pytrees)
    others = [name for name, path in location.other_items.items() if is_tree(path)]
    return [*location.items, *others]


def named_trees(checkpoint: Checkpoint) -> list[str] | UnsetType:
    """The names of all trees of the step, where they have names."""
    return sorted(filter(None, trees_of_step(checkpoint))) or UNSET


def own_record_path(checkpoint: Checkpoint, tree: str) -> Path | None:
    """Where the record of an item stands that was written by itself, as a checkpoint; None where it is the step's."""
    location, place = checkpoint.location, recorded_place(checkpoint)
    folder = {**location.other_items, **location.items}.get(tree, place / tree)
    if folder == place:
        return None
    beside = record_beside(folder)
    return beside if filesystem.is_file(beside) else folder / RECORD
