"""Whether all that stands at a path is of one checkpoint: who removes it then removes nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import (
    ARRAY_DOCUMENTS,
    Listing,
    files_below,
    holds_pytree,
    is_array_folder,
)
from surgery_cli.store.filesystem.names import is_record
from surgery_cli.store.locate.file_formats import format_of_file
from surgery_cli.store.locate.items import ITEM_SIDECARS, STEP_SIDECARS, holds_items, step_items
from surgery_cli.store.orbax.btree import DATA_FOLDERS, DONOR_PREFIX, PROCESS_PREFIX
from surgery_cli.store.orbax.btree_nodes import MANIFEST
from surgery_cli.store.orbax.sidecars import ARRAY_METADATAS
from surgery_cli.store.orbax.stored_values import NOT_RENAMED
from surgery_cli.store.orbax.unmerged import DATA_FILE, holds_data

_OF_DATABASES: Final = re.compile(
    rf"(?:(?:{re.escape(PROCESS_PREFIX)}|{re.escape(DONOR_PREFIX)})[^/]+/)*"
    rf"(?:{re.escape(MANIFEST)}|(?:{'|'.join(DATA_FOLDERS)})/{DATA_FILE.pattern})"
    rf"|{re.escape(ARRAY_METADATAS)}/process_\d+"
)
_CHUNKS: Final = (
    re.compile(r"(?P<array>.*/|)\d+(?:\.\d+)*", re.DOTALL),
    re.compile(r"(?P<array>.*/|)c(?:/\d+)*", re.DOTALL),
)
"""Where those of zarr 2 and 3 lie, below the folder of their array."""
_DOCUMENTS: Final = (*ARRAY_DOCUMENTS, ".zattrs")


def is_one_checkpoint(path: Path) -> bool:
    """True for a file that is a checkpoint, and for a folder in which every file is of one tree, or of one step.

    Whether it can be read is another question. A run of several steps is more than one.

    Raises:
        CheckpointError: something there cannot be looked at.
    """
    if not filesystem.is_folder(path):
        return format_of_file(path) is not None
    listing = Listing.of(path)
    if holds_pytree(listing) or holds_data(listing):
        return all(name in STEP_SIDECARS or of_tree for name, of_tree in _files_of(path))
    if not holds_items(listing):
        return False
    found = step_items(listing)
    trees = [*found.pytrees.values(), *(path / name for name in found.unfinished)]
    return not found.foreign and all(of_tree for tree in trees for _, of_tree in _files_of(tree))


def _files_of(tree: Path) -> Iterator[tuple[str, bool]]:
    """Each file in the folder of a tree, by its path from it, and whether it is one of that tree."""

    @cache
    def is_array(folder: str) -> bool:
        return is_array_folder(tree / folder)

    for name, _ in files_below(tree):
        whole = name.removesuffix(NOT_RENAMED)
        if whole in ITEM_SIDECARS or is_record(name) or _OF_DATABASES.fullmatch(whole):
            yield name, True
        elif Path(whole).name in _DOCUMENTS:
            yield name, is_array(str(Path(whole).parent))
        else:
            found = filter(None, (kind.fullmatch(whole) for kind in _CHUNKS))
            yield name, any(is_array(chunk["array"]) for chunk in found)
