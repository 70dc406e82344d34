"""Bytes of what comes along whatever the edit, told without reading any: sidecars, other items, foreign files."""

from __future__ import annotations

from pathlib import Path

from surgery_cli.inputs.regular_files import refuse_special
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import files_below, is_tree
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.open.item import PytreeItem
from surgery_cli.store.write.item import small_files


def carried_bytes(checkpoint: Checkpoint) -> int:
    """Bytes of files that are copied whatever the edit: sidecars, other items that are no trees, foreign files."""
    total = 0
    for item in checkpoint.items.values():
        if isinstance(item, PytreeItem):
            total += sum(_bytes_below(path) for path in small_files(item))
    location = checkpoint.location
    folder = location.folder_of_items
    if folder is not None:
        items = {path.name for path in location.items.values()}
        others = (folder / name for name in filesystem.names(folder) if name not in items)
        total += sum(_bytes_below(path) for path in others if not is_tree(path))
    return total + sum(_bytes_below(path) for path in location.root_files)


def unchosen_bytes(checkpoint: Checkpoint) -> int:
    """Bytes of the step's trees that were not chosen: they come along, their data by link."""
    location = checkpoint.location
    if location.shape not in ("root", "step"):
        return 0
    return sum(_bytes_below(path) for path in location.other_items.values() if is_tree(path))


def _bytes_below(path: Path) -> int:
    """Bytes of a file, or of everything in a directory."""
    if not filesystem.is_folder(path):
        refuse_special(path)
        return filesystem.size(path)
    return sum(entry.size for _, entry in files_below(path))
