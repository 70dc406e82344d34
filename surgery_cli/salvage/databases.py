"""What the OCDBT databases of an item still hold, whether their manifests stand or not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from surgery_cli.engine.progress import Listener, Meter
from surgery_cli.inputs.limits import STORED_VALUES
from surgery_cli.salvage.nodes import Node, read_manifest, read_node, scan
from surgery_cli.salvage.states import Route
from surgery_cli.salvage.values import Values
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.holes import data_ranges
from surgery_cli.store.orbax.btree import DATA_FOLDERS, DONOR_PREFIX, PROCESS_PREFIX
from surgery_cli.store.orbax.btree_nodes import MANIFEST
from surgery_cli.store.orbax.extents import extent_at
from surgery_cli.store.orbax.sidecars import METADATA
from surgery_cli.store.orbax.stored_values import NOT_RENAMED, FileRange, StoredValue
from surgery_cli.store.orbax.unmerged import DATA_FILE, holds_files


def is_database(folder: Path) -> bool:
    """True if files of a database stand in a folder."""
    entries = filesystem.entries(folder)
    if any(one.name in (MANIFEST, MANIFEST + NOT_RENAMED) and one.is_file for one in entries):
        return True
    return any(holds_files(folder / name, DATA_FILE) for name in DATA_FOLDERS)


def databases_of(item: Path) -> list[Path]:
    """The item's own database, if it has one, then those of processes and donors below it."""
    found = [item] if is_database(item) else []
    for entry in filesystem.entries_if_any(item):
        if entry.is_folder and entry.name.startswith((PROCESS_PREFIX, DONOR_PREFIX)):
            beside = item / entry.name
            if not filesystem.is_file(beside / METADATA):  # a checkpoint may be called so, too
                found += databases_of(beside)
    return found


def values_of(
    item: Path,
    databases: Iterable[Path],
    *,
    scans: bool = True,
    listener: Listener | None = None,
) -> Values:
    """Every value that a manifest of these databases leads to, and with ``scans`` any node in their data files."""
    found, every = Values(), list(databases)
    walked: set[Node] = set()
    manifests = [(folder, read_manifest(folder / MANIFEST)) for folder in every]
    for folder, manifest in manifests:
        route: Route = "manifest" if folder == item else "process manifest"
        is_whole = _walk_versions(folder, manifest, slice(-1, None), route, found, walked)
        found.is_walked |= folder == item and is_whole
    for folder in every:
        unnamed = read_manifest(folder / (MANIFEST + NOT_RENAMED))
        _walk_versions(folder, unnamed, slice(-1, None), "manifest not renamed", found, walked)
    for folder, manifest in manifests:
        _walk_versions(folder, manifest, slice(-2, None, -1), "earlier version", found, walked)
    files = {folder: list(_files(folder)) for folder in every} if scans else {}
    meter = Meter(listener, "searching", sum(_data_bytes(files)) if listener else 0)
    for folder, names in files.items():
        _walk_scanned(folder, names, found, walked, meter.advance)
    return found


def _data_bytes(files: Mapping[Path, Iterable[str]]) -> Iterator[int]:
    for folder, names in files.items():
        for name in names:
            yield sum(stop - start for start, stop in data_ranges(folder / name))


def _walk_versions(
    folder: Path,
    manifest: dict[str, Any] | None,
    which: slice,
    route: Route,
    found: Values,
    walked: set[Node],
) -> bool:
    """Take in what these versions lead to; True if there is one, and nothing below any is damaged."""
    is_whole = []
    for version in [] if manifest is None else manifest.get("versions", [])[which]:
        root = version.get("root", {})
        if "location" in root:
            node = _node_at(folder, root["location"])
            is_whole.append(_walk(node, b"", route, found, walked))
    return bool(is_whole) and all(is_whole)


def _walk(node: Node | None, prefix: bytes, route: Route, found: Values, walked: set[Node]) -> bool:
    """Take in what a node leads to; what is damaged below it is left out, and False returned."""
    waiting: list[tuple[Node | None, bytes, int | None]] = [(node, prefix, None)]
    count, is_whole = 0, True
    while waiting:
        one, before, height = waiting.pop()
        content = None if one is None else read_node(one)
        if one is None or content is None or height not in (None, content["height"]):
            is_whole = False
            continue
        walked.add(one)
        count += len(content["entries"])
        STORED_VALUES.check(count, f"the store in '{one.database}'")
        for entry in content["entries"]:
            if content["height"]:
                below = _node_at(one.database, entry["location"])
                prefix = before + entry["subtree_common_prefix"]
                waiting.append((below, prefix, content["height"] - 1))
            else:
                _take_in(one.database, before, entry, route, found)
    return is_whole


def _take_in(
    database: Path, before: bytes, entry: dict[str, Any], route: Route, found: Values
) -> None:
    key = (before + entry["key"]).decode(errors="surrogateescape")
    value: StoredValue | None = entry.get("inline_value")
    if value is None:
        place = _extent_at(entry["indirect_value"])
        if place is None:
            found.gone.add(key)
            return
        value = FileRange(database / place.file, place.offset, place.length)
    found.add(key, value, route)


def _walk_scanned(
    folder: Path,
    files: Iterable[str],
    found: Values,
    walked: set[Node],
    searched: Callable[[int], None],
) -> None:
    """Nodes to which nothing leads any more: those with others below them first, which know the begin of their keys."""
    heights: dict[Node, int] = {}
    for file in files:
        for node in scan(folder, file, searched):
            if node not in walked and (content := read_node(node)) is not None:
                heights[node] = content["height"]
    for node in sorted(heights, key=lambda one: -heights[one]):
        if node not in walked:
            _walk(node, b"", "scan for nodes", found, walked)


def _files(folder: Path) -> Iterator[str]:
    """All data files of a database, under whatever name, but not those of databases below it."""
    for name in DATA_FOLDERS:
        for file in (
            filesystem.files_below(folder / name) if filesystem.is_folder(folder / name) else ()
        ):
            yield file.removeprefix(f"{folder}/")


def _node_at(database: Path, location: str) -> Node | None:
    place = _extent_at(location)
    return None if place is None else Node(database, place.file, place.offset, place.length)


def _extent_at(location: str) -> Any:
    """Where a value lies; None if it is said to lie outside the database."""
    try:
        return extent_at(location)
    except ValueError:
        return None
