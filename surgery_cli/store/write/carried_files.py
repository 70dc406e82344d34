"""Files that come along whatever the edit, told without reading any: sidecars, other items, foreign files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.inputs.regular_files import refuse_special
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import files_below, is_tree
from surgery_cli.store.filesystem.protocol import COMMIT_MARK
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.open.item import Item, PytreeItem
from surgery_cli.store.write.item import small_files


class Carried(NamedTuple):
    """A file that comes along."""

    name: str
    size: int

    @property
    def is_mark(self) -> bool:
        """True for what says that something is whole: where that is asked for, it is made anew, last."""
        return self.name == COMMIT_MARK


def carried_files(
    checkpoint: Checkpoint, items: Iterable[Item], *, left_out: Collection[str] = ()
) -> list[Carried]:
    """Files that are copied whatever the edit: sidecars, other items that are no trees, foreign files.

    ``items`` are those of which the items of the result are made: one that is new has the sidecars of the one that it
    is like. ``left_out``: names of items that do not come along.
    """
    beside = beside_items(checkpoint, left_out)
    places = [*beside_values(items), *(path for path in beside if not is_tree(path))]
    return [one for path in places for one in _below(path)]


def beside_values(items: Iterable[Item]) -> list[Path]:
    """What stands in items beside their data, and comes along."""
    return [path for item in items if isinstance(item, PytreeItem) for path in small_files(item)]


def beside_items(checkpoint: Checkpoint, left_out: Collection[str] = ()) -> list[Path]:
    """What stands beside items and comes along: of the step, trees that were not chosen among it; and of the root.

    But for files there that are not Orbax's.
    """
    location = checkpoint.location
    folder = location.folder_of_items
    if folder is None:
        return location.root_files
    apart = {*left_out, *(path.name for path in location.items.values())}
    return [*(folder / name for name in sorted(location.in_step - apart)), *location.root_files]


def unchosen_files(checkpoint: Checkpoint) -> list[Carried]:
    """The files of the step's trees that were not chosen: they come along, their data by link."""
    location = checkpoint.location
    if location.shape not in ("root", "step"):
        return []
    trees = (path for path in location.other_items.values() if is_tree(path))
    return [one for path in trees for one in _below(path)]


def carried_to(target: Path | None, files: Iterable[Carried]) -> Iterator[Carried]:
    """Those of the files that are taken along to ``target``: in a bucket, marks are made anew."""
    is_marked = isinstance(target, BucketPath)
    return (file for file in files if not (is_marked and file.is_mark))


def _below(path: Path) -> Iterator[Carried]:
    """A file, or every file in a directory."""
    if filesystem.is_folder(path):
        yield from (Carried(entry.name, entry.size) for _, entry in files_below(path))
        return
    refuse_special(path)
    yield Carried(path.name, filesystem.size(path))
