"""What stands in folders of leaves' own, as Orbax writes them without OCDBT."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from surgery_cli.salvage.states import Route
from surgery_cli.salvage.values import Values
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.names import is_leftover
from surgery_cli.store.orbax.btree import DATA_FOLDERS, DONOR_PREFIX, PROCESS_PREFIX
from surgery_cli.store.orbax.sidecars import ARRAY_METADATAS
from surgery_cli.store.orbax.stored_values import NOT_RENAMED, FileRange


def add_values_of_folders(item: Path, found: Values) -> None:
    """Every file in a folder of the item that is not a database's, by its path; those not renamed yet come last."""
    files = list(_files(item))
    for is_renamed in (True, False):
        for key, size in files:
            if key.endswith(NOT_RENAMED) is is_renamed or not size:
                continue
            value = FileRange(item / key, 0, size)
            route: Route = "leaf folder" if is_renamed else "file not renamed"
            found.add(key.removesuffix(NOT_RENAMED), value, route)


def _files(item: Path) -> Iterator[tuple[str, int]]:
    for entry in filesystem.entries_if_any(item):
        is_other = entry.name in (*DATA_FOLDERS, ARRAY_METADATAS) or entry.name.startswith(
            (PROCESS_PREFIX, DONOR_PREFIX)
        )
        if entry.is_folder and not is_other and not is_leftover(entry.name):
            for file in filesystem.files_below(item / entry.name):
                yield file.removeprefix(f"{item}/"), filesystem.size(file)
