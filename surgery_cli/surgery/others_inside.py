"""Checkpoints that lie inside of one and are no part of it: who replaces that would remove them as well."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from surgery_cli.errors import DestinationError, SurgeryError, UnseenError
from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import Listing, starts_as_msgpack
from surgery_cli.store.filesystem.names import (
    SET_ASIDE_SUFFIX,
    is_leftover,
    step_name,
    unfinished_name,
)
from surgery_cli.store.filesystem.protocol import Entry
from surgery_cli.store.locate.items import STEP_METADATA, item_handlers
from surgery_cli.store.locate.location import locate
from surgery_cli.store.locate.steps import find_steps
from surgery_cli.store.orbax.btree import PROCESS_PREFIX
from surgery_cli.store.orbax.btree_nodes import MANIFEST
from surgery_cli.store.orbax.sidecars import METADATA
from surgery_cli.store.orbax.zarr import DOCUMENT_NAMES
from surgery_cli.words.lists import quoted

_SHOWN: Final = 4
_ARRAY_DOCUMENTS: Final = frozenset(DOCUMENT_NAMES.values())


def refuse_to_lose_others(destination: Path) -> None:
    """Refuse to replace a checkpoint with others inside of it, which are no part of it and would go as well.

    Raises:
        DestinationError: so; they are named.
    """
    if filesystem.is_link(destination) or not filesystem.is_folder(destination):
        return
    if not (lost := _others_inside(destination)):
        return
    them = "a checkpoint of its own" if len(lost) == 1 else "checkpoints of their own"
    raise DestinationError(
        f"`--force` would remove {quoted(lost, _SHOWN)} with '{destination}'",
        why=f"{them}, and no part of what would be replaced",
        fix=f"move {'it' if len(lost) == 1 else 'them'} to another place first, or name another destination",
    )


def _others_inside(destination: Path) -> list[Path]:
    """The topmost of them, by what tells a tree or a step."""
    # first of all, as in a bucket no folder is listed by itself then
    files = {folder: {e.name for e in found if e.is_file} for folder, found in _below(destination)}
    if len(files) == 1 and not files[destination]:
        return []
    location = locate(str(filesystem.absolute(destination)))
    steps = {destination} if location.shape == "step" else set[Path]()
    if location.shape == "root":
        steps = {destination / step.name for step in find_steps(Listing.of(destination))}
    trees = set(_trees(files))
    own = {*steps, *(tree for tree in trees if tree.parent in steps), destination}
    whole, told, found = {*location.root_files}, {METADATA, STEP_METADATA}, set[Path]()
    in_folders = {tree for tree in own & trees if MANIFEST not in files[tree]}
    may_be_item = cache(_may_be_item)
    steps_or_files = (one for folder in files for one in _steps_and_files(folder, files[folder]))
    for place in sorted({*trees, *steps_or_files}):
        above = {place, *place.parents}
        if place in own or above & whole or above & found:
            continue
        if above & in_folders and not files.get(place, told) & told:
            continue  # arrays of that tree, whose names have slashes
        step = next((one for one in place.parents if one in steps), None)
        # a handler of the user's may keep trees in an item that is none
        item = None if step is None else step / place.relative_to(step).parts[0]
        if item is None or item in trees or not may_be_item(item):
            found.add(place)
    return sorted(found)


def _steps_and_files(folder: Path, names: set[str]) -> Iterator[Path]:
    """The folder, if it is called a step by what stands in it, and the files of Flax in it."""
    if STEP_METADATA in names:
        yield folder
    for name in names:
        named = step_name(name)
        is_called_so = name.endswith(".msgpack") or (named and named.prefix == "checkpoint")
        if is_called_so and starts_as_msgpack(folder / name):
            yield folder / name


def _trees(files: dict[Path, set[str]]) -> Iterator[Path]:
    """Folders in which a tree stands, in any layout."""
    for folder, names in files.items():
        if METADATA in names or (MANIFEST in names and not folder.name.startswith(PROCESS_PREFIX)):
            yield folder
        elif "checkpoint" in names and starts_as_msgpack(folder / "checkpoint"):
            yield folder  # TensorFlow writes a text of this name
        elif names & _ARRAY_DOCUMENTS and folder.parent in files:
            yield folder.parent


def _may_be_item(place: Path) -> bool:
    """True for a folder of a step that is an item by its record, or of which that does not tell."""
    try:
        handlers = item_handlers(Listing.of(place.parent))
    except UnseenError:
        raise
    except SurgeryError:  # what is damaged in a run goes with it
        return True
    return not isinstance(handlers, dict) or place.name in handlers


def _below(folder: Path) -> Iterator[tuple[Path, list[Entry]]]:
    """Every folder, with what stands in it; not what a link leads to, which stays when the link goes.

    Nor what saves and runs have left unfinished.
    """
    if isinstance(folder, BucketPath):
        for prefix, entries in filesystem.below(folder):
            parts = [part for part in prefix.split("/") if part]
            if not any(map(_is_unfinished, parts)):
                yield folder.joinpath(*parts), entries
        return
    entries = list(filesystem.entries(folder))
    yield folder, entries
    for entry in entries:
        if entry.is_folder and not entry.is_link and not _is_unfinished(entry.name):
            yield from _below(folder / entry.name)


def _is_unfinished(name: str) -> bool:
    """What an interrupted run had set aside is whole."""
    is_built = is_leftover(name) and not name.endswith(SET_ASIDE_SUFFIX)
    return is_built or unfinished_name(name) is not None
