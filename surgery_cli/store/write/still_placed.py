"""Whether what an earlier run has put in its place still stands there: blocks are read back, the rest is held here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from surgery_cli.errors import WriteError
from surgery_cli.store import filesystem
from surgery_cli.store.orbax.arrays import below
from surgery_cli.store.orbax.btree import Survey
from surgery_cli.store.orbax.btree_nodes import MANIFEST
from surgery_cli.store.orbax.extents import Extent
from surgery_cli.store.orbax.ocdbt import OcdbtStore
from surgery_cli.store.orbax.per_leaf import PerLeafStore
from surgery_cli.store.write.item_plan import PlannedLeaf


def check_database(target: Path, store: OcdbtStore, leaves: Iterable[PlannedLeaf]) -> None:
    """What ``leaves`` take as it is stands in the database at ``target``; ``store`` is the one it was made from.

    Raises:
        WriteError: some of it is gone.
        CheckpointError: the database cannot be read.
    """
    if not filesystem.is_file(target / MANIFEST):
        raise _gone(target / MANIFEST)
    survey = Survey(target, store.survey if store.recognises(store.directory) else None)
    files: dict[str, int] = {}
    for leaf in leaves:
        for key in _keys(leaf):
            value = survey.values.get(key.encode())
            if value is None:
                raise _gone(target / MANIFEST, f"it has nothing of '{leaf.draft_path}' any more")
            if isinstance(value, Extent):
                files[value.file] = max(files.get(value.file, 0), value.offset + value.length)
    for file, size in files.items():
        _check_file(target / file, size)


def check_folders(target: Path, leaves: Iterable[PlannedLeaf]) -> None:
    """As ``check_database``, where every leaf is a folder of files."""
    for leaf in leaves:
        for taken in leaf.taken:
            is_linked = isinstance(taken.store, PerLeafStore)
            source = taken.store.directory / taken.array.name
            for old, new in zip(taken.array.keys, taken.to, strict=True):
                size = filesystem.size(source / old) if is_linked else 0
                _check_file(target / leaf.name / new, size)


def _keys(leaf: PlannedLeaf) -> Iterator[str]:
    for taken in leaf.taken:
        yield from (below(leaf.name) + key for key in taken.to)


def _check_file(place: Path, size: int) -> None:
    if not filesystem.is_file(place):
        raise _gone(place)
    if filesystem.size(place) < size:
        raise _gone(place, f"it has {filesystem.size(place)} bytes of {size}")


def _gone(place: Path, why: str = "") -> WriteError:
    return WriteError(f"'{place}' is {'damaged' if why else 'gone'}", why=why)
