"""Databases of a save's processes held against that into which they were merged: a merge changes no value."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from surgery_cli.errors import CheckpointError, UnseenError
from surgery_cli.store import filesystem
from surgery_cli.store.orbax.btree import PROCESS_PREFIX, Survey
from surgery_cli.store.orbax.btree_nodes import MANIFEST, manifest_of
from surgery_cli.store.orbax.extents import Extent
from surgery_cli.store.orbax.ocdbt import OcdbtStore
from surgery_cli.store.orbax.stored_values import is_copy
from surgery_cli.store.orbax.zarr import DOCUMENT_NAMES


def of_another_save(store: OcdbtStore) -> Iterator[str]:
    """The manifests of processes that lead to other values, all of them there, than the manifest of the whole."""
    for name in filesystem.names(store.directory):
        folder = store.directory / name
        if not name.startswith(PROCESS_PREFIX) or not filesystem.is_file(folder / MANIFEST):
            continue
        try:
            if _may_differ(store, folder) and _differs(store.survey, Survey(folder)):
                yield f"{name}/{MANIFEST}"
        except UnseenError:
            raise
        except CheckpointError:
            continue  # nothing needs it once it is merged


def copied_databases(item: Path) -> Iterator[tuple[str, str]]:
    """Databases of processes under names that no save gives, with the one that each holds the very files of."""
    files = {
        name: frozenset(PurePosixPath(file).name for file in filesystem.files_below(item / name))
        for name in filesystem.names(item)
        if name.startswith(PROCESS_PREFIX) and filesystem.is_folder(item / name)
    }
    for name, own in files.items():
        alike = (one for one in files if one != name and files[one] == own and len(one) < len(name))
        if (first := min(alike, key=len, default=None)) is not None:
            yield name, first


def _may_differ(store: OcdbtStore, folder: Path) -> bool:
    """Whether as much is dead as other values take: then its tree is worth reading."""
    try:
        root = manifest_of(folder)["versions"][-1]["root"]
        return bool(2 * store.dead_bytes >= root["statistics"]["num_indirect_value_bytes"])
    except (ValueError, KeyError, IndexError, OSError):
        return False


def _differs(whole: Survey, process: Survey) -> bool:
    sizes: dict[str, int] = {}

    def is_there(value: Extent) -> bool:
        if value.file not in sizes:
            path = process.directory / value.file
            sizes[value.file] = filesystem.size(path) if filesystem.is_file(path) else -1
        return value.offset + value.length <= sizes[value.file]

    for key, value in process.values.items():
        other = whole.values.get(key)
        if isinstance(value, bytes):
            if isinstance(other, bytes) and other != value:
                return True
        elif isinstance(other, Extent) and key.rpartition(b"/")[2].decode(errors="replace") not in (
            DOCUMENT_NAMES.values()  # each process may have written these
        ):
            is_same = is_copy((value.file, value), (other.file, other))
            if not is_same and is_there(value):
                return True
    return False
