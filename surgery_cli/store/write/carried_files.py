"""Files that come along whatever the edit, told without reading any: sidecars, other items, foreign files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from surgery_cli.inputs.regular_files import refuse_special
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import COMMIT_MARK, files_below, is_tree
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.open.item import PytreeItem
from surgery_cli.store.write.item import small_files


def carried_files(checkpoint: Checkpoint) -> list[int]:
    """Sizes of files that are copied whatever the edit: sidecars, other items that are no trees, foreign files."""
    found: list[int] = []
    for item in checkpoint.items.values():
        if isinstance(item, PytreeItem):
            found += (size for path in small_files(item) for size in _sizes_below(path))
    location = checkpoint.location
    folder = location.folder_of_items
    if folder is not None:
        items = {path.name for path in location.items.values()}
        others = (folder / name for name in filesystem.names(folder) if name not in items)
        found += (size for path in others if not is_tree(path) for size in _sizes_below(path))
    return found + [size for path in location.root_files for size in _sizes_below(path)]


def unchosen_files(checkpoint: Checkpoint) -> list[int]:
    """Sizes of the files of the step's trees that were not chosen: they come along, their data by link."""
    location = checkpoint.location
    if location.shape not in ("root", "step"):
        return []
    trees = (path for path in location.other_items.values() if is_tree(path))
    return [size for path in trees for size in _sizes_below(path)]


def _sizes_below(path: Path) -> Iterator[int]:
    """The size of a file, or of every file in a directory; marks that say that something is whole are made anew."""
    if filesystem.is_folder(path):
        yield from (entry.size for name, entry in files_below(path) if not _is_mark(name))
        return
    refuse_special(path)
    if not _is_mark(path.name):
        yield filesystem.size(path)


def _is_mark(name: str) -> bool:
    return name.rpartition("/")[2] == COMMIT_MARK
