"""What an item's metadata promises and its directory does not hold: why there is no tree, or a leaf without data."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from surgery_cli.errors import CheckpointError
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import Listing
from surgery_cli.store.orbax.arrays import ArrayStore, StoredArray
from surgery_cli.store.orbax.btree_nodes import MANIFEST
from surgery_cli.store.orbax.sidecars import AGGREGATE, METADATA, Sidecars
from surgery_cli.store.orbax.unmerged import holds_data, unmerged
from surgery_cli.tree.paths import LeafPath, stored_name

_CUT_SHORT = "the save or a copy was cut short; copy it again from where it is whole"


def no_data(directory: Path, sidecars: Sidecars, path: LeafPath, why: str) -> CheckpointError:
    """The error for a leaf that metadata names, and that is not stored."""
    if _lacks_manifest(directory, sidecars):
        return _without_manifest(directory, f"'{path}' is not found")
    name = stored_name(path)
    slashed = name.replace("\\", "/")
    if slashed != name and filesystem.is_folder(directory / slashed):
        return CheckpointError(
            f"the leaf '{path}' is stored in '{directory / slashed}'",
            why="TensorStore takes the backslash in its name for a slash, and Orbax does not find it again",
            fix="save it under a name without one, or with OCDBT",
        )
    return CheckpointError(
        f"the leaf '{path}' has no data in '{directory}'",
        why=f"{why}, and nothing with its name is stored",
        fix=_CUT_SHORT,
    )


def other_place(directory: Path, path: LeafPath, said: str) -> CheckpointError:
    """The error for a leaf whose array Orbax looks for under its own name, whatever ``checkpoint`` says of it."""
    return CheckpointError(
        f"`{AGGREGATE}` in '{directory}' is damaged",
        why=f"of '{path}' {said}; Orbax restores '{stored_name(path)}'",
        fix="copy the file again from where it was whole",
    )


def no_tree(directory: Path, sidecars: Sidecars) -> CheckpointError:
    """The error for an item without any file that names leaves: even an empty tree has one that says so."""
    if _lacks_manifest(directory, sidecars):
        return _without_manifest(directory, "none of them is found")
    return CheckpointError(
        f"'{directory}' holds no tree",
        why=f"there is no `_METADATA`, no `{MANIFEST}`, no `{AGGREGATE}` and no array in it",
        fix=_CUT_SHORT,
    )


def refuse_unnamed(values: Collection[LeafPath], directory: Path, store: ArrayStore | None) -> None:
    """Refuse a ``_METADATA`` without one leaf beside arrays: read as an empty tree, they would be lost unsaid.

    Raises:
        CheckpointError: so.
    """
    if not values and store is not None and any(store.arrays):
        raise CheckpointError(
            f"'{directory / METADATA}' names no leaf",
            why="arrays are stored beside it, and Orbax neither writes nor restores an empty tree",
            fix="copy the file again from where it was whole",
        )


def refuse_incomplete(directory: Path, array: StoredArray, *, may_lack: bool) -> None:
    """Refuse an array whose chunks are not all stored (unless it may lack some), or of which files are empty.

    Raises:
        CheckpointError: so.
    """
    document = array.document
    lack = None if may_lack else document.lacks(array.keys)
    if lack is None and not array.empty_keys:
        return
    why = None if lack is None else f"{lack}, and all were written"
    empty = [key for key in array.empty_keys if document.is_chunk(key)]
    if empty:
        why = f"files of {len(empty)} of {document.chunk_count} chunks are empty (first: '{empty[0]}')"
    if why is not None:
        raise CheckpointError(
            f"'{array.name}' in '{directory}' is incomplete", why=why, fix=_CUT_SHORT
        )


def _without_manifest(directory: Path, lost: str) -> CheckpointError:
    return unmerged(directory) or CheckpointError(
        f"'{directory}' has no '{MANIFEST}'",
        why=f"the arrays are in an OCDBT database, and without that file {lost}",
        fix="the save or a copy was cut short; copy the file from where the checkpoint is whole",
    )


def _lacks_manifest(directory: Path, sidecars: Sidecars) -> bool:
    """True if the arrays should be in a database of which the first file is not there."""
    if filesystem.is_file(directory / MANIFEST):
        return False
    declared = (sidecars.metadata or {}).get("use_ocdbt")
    if declared is not None:
        return bool(declared)
    return holds_data(Listing.of(directory))
