"""What tells the files of a run from others of the same names and sizes, of which fingerprints know nothing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from surgery_cli.store import filesystem
from surgery_cli.store.files.array_file import ArrayFile
from surgery_cli.store.files.fingerprints import of_items, of_versions
from surgery_cli.store.filesystem.names import is_record
from surgery_cli.store.filesystem.protocol import COMMIT_MARK, Place
from surgery_cli.store.locate.items import STEP_METADATA
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.open.file_item import FileItem
from surgery_cli.store.open.item import Item, PytreeItem
from surgery_cli.store.write.carried_files import beside_items, beside_values
from surgery_cli.surgery.preparation import Prepared


def file_versions(sources: Mapping[str, Checkpoint | ArrayFile]) -> dict[str, str]:
    """By name, of what is read of each source: of its trees, whatever stands beside their data."""
    return {name: _of_values(source) for name, source in sources.items()}


def _of_values(source: Checkpoint | ArrayFile) -> str:
    if isinstance(source, ArrayFile):
        return of_versions(source.path, [source.path])
    items = source.items.items()
    return of_items((name, of_versions(item.directory, _files_of(item))) for name, item in items)


def _files_of(item: Item) -> Iterable[Place]:
    """Those that hold its values, but for what its fingerprint digests byte by byte."""
    if isinstance(item, FileItem):
        return item.files
    store = item.store if isinstance(item, PytreeItem) else None
    return () if store is None else (f"{item.directory}/{name}" for name in store.data_files)


def versions_carried(prepared: Prepared) -> dict[str, str]:
    """The same of what comes along with the source's values, each file or folder by its path from the source.

    Not of what a fingerprint digests, nor of files that are not Orbax's beside the steps of a run: those are copied in
    the end, as they are then, and logs among them grow with a training that goes on.
    """
    if prepared.is_export:
        return {}
    source, found = prepared.checkpoint, {}
    every = (plan.item for plan in prepared.kept_plans.values())
    items = [item for item in every if isinstance(item, PytreeItem)]
    digested = {f"{item.directory}/{name}" for item in items for name in item.digested}
    digested |= {f"{source.location.step_directory}/{STEP_METADATA}"}
    for place in {*beside_values(items), *beside_items(source, prepared.left_out)}:
        files = {file for file in filesystem.files_below(place) if not is_said_of(file)} - digested
        if files:
            name = os.fspath(place).removeprefix(f"{source.location.root}/")
            found[name] = of_versions(place, files)
    return found


def is_said_of(file: str) -> bool:
    """True for marks and records, which hold no values and are made anew."""
    name = PurePosixPath(file).name
    return name == COMMIT_MARK or is_record(name)
