"""Databases that a save wrote and never merged: each process writes one, and the end of the save joins them."""

from __future__ import annotations

import re
from pathlib import Path
from shlex import quote
from typing import Final

from surgery_cli.errors import CheckpointError, UnseenError
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import Listing
from surgery_cli.store.orbax.btree import DATA_FOLDERS, DONOR_PREFIX, PROCESS_PREFIX, Survey
from surgery_cli.store.orbax.btree_nodes import MANIFEST
from surgery_cli.store.orbax.extents import Extent
from surgery_cli.store.orbax.zarr import DOCUMENT_NAMES, parse
from surgery_cli.words.lists import quoted

DATA_FILE: Final = re.compile("[0-9a-f]{32}")
"""How TensorStore, and this program, call a file of values and nodes."""


def holds_files(folder: Path, named: re.Pattern[str]) -> bool:
    """True for a folder in which such a file stands: a checkpoint may be called ``d``, too, and has others."""
    entries = filesystem.entries_if_any(folder)
    return any(not one.is_folder and named.match(one.name) for one in entries)


def holds_data(listing: Listing) -> bool:
    """True if data of a database stand in a directory, or databases that processes wrote, whatever else does."""
    if any(name.startswith((PROCESS_PREFIX, DONOR_PREFIX)) for name in listing.folders):
        return True
    return any(
        name in listing.folders and holds_files(listing.path / name, DATA_FILE)
        for name in DATA_FOLDERS
    )


def unmerged(directory: Path) -> CheckpointError | None:
    """The error for an item without a database of its own, in which those of processes can be read; else None."""
    folders = [
        directory / name
        for name in filesystem.names(directory)
        if name.startswith(PROCESS_PREFIX) and filesystem.is_file(directory / name / MANIFEST)
    ]
    keys: set[str] = set()
    documents: dict[str, bytes] = {}
    for folder in folders:
        try:
            survey = Survey(folder)
            survey.check_files()
        except UnseenError:
            raise
        except CheckpointError:
            return None
        texts = {
            key.decode(errors="surrogateescape"): value for key, value in survey.values.items()
        }
        keys.update(texts)
        named: dict[str, bytes | Extent] = {
            name.removesuffix(f"/{document}"): value
            for document in DOCUMENT_NAMES.values()
            for name, value in texts.items()
            if name.endswith(f"/{document}")
        }
        documents |= survey.read_all(named)
    whole = [name for name, raw in documents.items() if _is_whole(name, raw, keys)]
    if not whole:
        return None
    held = (
        f"all {len(whole)}" if len(whole) == len(documents) else f"{len(whole)} of {len(documents)}"
    )
    names = quoted((folder.name for folder in folders), 3, word="and")
    # what a merge writes lies in a folder beside the manifest, and is there before it
    is_merged = any(filesystem.is_folder(directory / folder) for folder in DATA_FOLDERS)
    return CheckpointError(
        f"'{directory}' has no '{MANIFEST}'"
        if is_merged
        else f"'{directory}' was never merged: it has no '{MANIFEST}'",
        why=f"a save ends by merging what each process wrote; in {names} {held} arrays are whole",
        fix=f"keep it; `surgery rescue {quote(str(directory))} NEW` writes a checkpoint of them",
    )


def _is_whole(name: str, raw: bytes, keys: set[str]) -> bool:
    """True if every chunk of the array is among the keys."""
    try:
        document = parse(raw)
    except CheckpointError:
        return False
    start = f"{name}/"
    return document.lacks([key[len(start) :] for key in keys if key.startswith(start)]) is None
