"""What is left of an npz file: each entry as its own header and the directory at the end say it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from surgery_cli.errors import CheckpointError, UnseenError
from surgery_cli.salvage.file_leaf import FileLeaf, FileLeaves
from surgery_cli.store import filesystem
from surgery_cli.store.files.npy_arrays import array_in
from surgery_cli.store.files.zip_entries import Entries, Entry, entries_of, places_of, unpacked
from surgery_cli.store.orbax.arrays import Window
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.words.lists import quoted

_NPY: Final = ".npy"
_NPY_MARK: Final = b"\x93NUMPY"


class _Found(NamedTuple):
    """The one entry of a name with the bytes that have their checksum; None with the ``why``."""

    entry: Entry | None
    why: str = ""


def npz_leaves(path: Path) -> FileLeaves:
    """Every leaf that an entry's header or the directory names; a whole one has its checksum, wherever it stands."""
    entries = entries_of(path)
    found = _by_name(path, entries)
    leaves = {
        LeafPath((name.removesuffix(_NPY),)): _leaf(path, one)
        for name, one in found.items()
        if name.endswith(_NPY)
    }
    fault = _fault(entries, found)
    return FileLeaves(leaves, fault, entries.is_complete)


def _by_name(path: Path, entries: Entries) -> dict[str, _Found]:
    """What became of each name."""
    whole = [one for one in entries.local if one.is_whole]
    free = list(_free_places(path, whole, entries))
    found: dict[str, _Found] = {}
    for one in entries.listed:
        found[one.name] = _listed_one(path, one, whole, entries.local, free)
    known = {one.name for one in entries.listed}
    for one in entries.local:
        if one.name in known or (entries.is_complete and not one.is_whole):
            continue  # what a damaged header calls it, if the directory names all
        if entries.is_complete:
            why = "the directory at the end of the file does not name it"
            found[one.name] = _Found(None, why)
        else:
            found[one.name] = _only(path, [w for w in whole if w.name == one.name], one)
    return found


def _only(path: Path, whole: list[Entry], said: Entry) -> _Found:
    """The entry that stands there, or several times with the same values."""
    if len({(one.crc, one.size) for one in whole}) > 1:
        return _Found(None, "it stands there twice, with different values")
    return _Found(whole[0]) if whole else _Found(None, _why(path, said))


def _listed_one(
    path: Path, one: Entry, whole: list[Entry], local: list[Entry], free: list[int]
) -> _Found:
    """The bytes of an entry that the directory names."""
    own = [other for other in whole if other.name == one.name]
    same = [other for other in own if (other.crc, other.size) == (one.crc, one.size)]
    if own:
        return _only(path, same or own, one)
    for other in whole:
        if (other.crc, other.size) == (one.crc, one.size):
            return _Found(None, f"what stands before its bytes calls it '{other.name}'")
    places = [other.start for other in local if other.name == one.name]
    places += free if one.method == 0 else []
    for start in places:
        moved = one._replace(start=start)
        if unpacked(path, moved) is not None:
            return _Found(moved)
    return _Found(None, _why(path, one))


def _free_places(path: Path, whole: list[Entry], entries: Entries) -> Iterator[int]:
    """Where arrays begin that stand in no whole entry: their own header may be lost."""
    if {one.name for one in whole} >= {one.name for one in entries.listed}:
        return
    ends = {one.start: one.start + one.stored for one in whole}
    for at in places_of(path, _NPY_MARK):
        if not any(start <= at < end for start, end in ends.items()):
            yield at


def _why(path: Path, one: Entry) -> str:
    there = max(filesystem.size(path) - one.start, 0)
    if one.has_sizes and there < one.stored:
        return f"{there} of its {one.stored} bytes are there"
    return "its bytes do not have their checksum"


def _leaf(path: Path, found: _Found) -> FileLeaf:
    if found.entry is None:
        return FileLeaf(None, None, found.why)
    try:
        values = _read(path, found.entry, None)
    except UnseenError:
        raise
    except CheckpointError as error:
        return FileLeaf(None, None, error.problems[0].why)
    spec = LeafSpec(kind=LeafKind.NUMPY, shape=values.shape, dtype=values.dtype.name)
    return FileLeaf(spec, partial(_read, path, found.entry), has_checksum=True)


def _read(path: Path, entry: Entry, window: Window | None) -> Any:
    raw = unpacked(path, entry)
    if raw is None:
        raise CheckpointError(
            f"'{entry.name}' in '{path}' is damaged", why="its bytes do not have their checksum"
        )
    values = array_in(path, io.BytesIO(raw), entry.name)
    return values if window is None else values[window]


def _fault(entries: Entries, found: dict[str, _Found]) -> str:
    """What is wrong with the file beside values, in words; '' if nothing is."""
    if not entries.is_complete:
        return "what stands at its end, the names of all, is not there"
    said = {one.name: one for one in entries.listed}
    other = [
        name
        for name, one in found.items()
        if one.entry is not None and name in said and not _agree(one.entry, said[name])
    ]
    if other:
        return f"the directory at its end says other things of {quoted(other, 4, word='and')} than their headers"
    if any(one.entry is None for one in found.values()):
        return "bytes of it are lost, or others than were written"
    return ""


def _agree(here: Entry, there: Entry) -> bool:
    return (here.crc, here.size, here.method) == (there.crc, there.size, there.method)
