"""The items of one step: which are trees, which are something else, what is foreign to Orbax."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import msgspec

from surgery_cli.inputs.json_decoding import decode_python_json
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import ARRAY_DOCUMENTS, Listing, holds_pytree, unreadable
from surgery_cli.store.filesystem.names import is_record, step_name, unfinished_name
from surgery_cli.store.filesystem.small_files import read_small
from surgery_cli.store.locate.lfs_pointers import refuse_pointer
from surgery_cli.store.orbax.btree import DONOR_PREFIX, PROCESS_PREFIX

STEP_METADATA: Final = "_CHECKPOINT_METADATA"
METRICS: Final = "metrics"
"""The item in which a manager saves what was measured of a step."""

V1_MARK: Final = "orbax.checkpoint"
"""A file that Orbax's v1 puts into what it saves."""
STEP_SIDECARS: Final = frozenset({STEP_METADATA, "commit_success.txt", V1_MARK})
"""Plain files of a step directory (v0 Composite, v1) that are not items."""

ITEM_SIDECARS: Final = frozenset(
    {
        "_METADATA",
        "_sharding",
        "_strings.json",
        "checkpoint",
        "commit_success.txt",
        "manifest.ocdbt",
        "pytree_metadata",
    }
)
"""Plain files of a pytree item's directory."""

DIGESTED: Final = (
    "_METADATA",
    "_sharding",
    "_strings.json",
    "manifest.ocdbt",
    "checkpoint",
    STEP_METADATA,
)
"""What a fingerprint knows byte by byte of an item, in the order in which it goes into it."""

_CHUNK: Final = re.compile(r"\d+(\.\d+)*")
"""A file that holds a chunk."""

_JSON_FILES: Final = frozenset({"metadata", "data.json", "metrics", "descriptor.pbtxt"})


class StepItems(msgspec.Struct, frozen=True):
    """What a step directory holds.

    ``unfinished`` are names of items whose save was interrupted, ``absent`` of those that are recorded and not there.
    """

    pytrees: dict[str, Path]
    others: dict[str, Path]
    foreign: list[Path]
    unfinished: list[str]
    absent: list[str]

    @property
    def names(self) -> list[str]:
        return [*self.pytrees, *self.others]


def step_items(step: Listing) -> StepItems:
    """Sort out the folders and files of a step.

    ``item_handlers`` decides where it names a known handler; else what stands inside (0.8.0 and earlier do not record
    handlers, and a handler may be the user's own).

    Raises:
        CheckpointError: something in it cannot be read.
    """
    handlers = item_handlers(step)
    recorded = handlers if isinstance(handlers, dict) else {}
    found = StepItems({}, {}, [], step.unfinished(), [])
    for name in step.own_folders():
        path = step.path / name
        match handler_kind(recorded.get(name)) or _content_kind(Listing.of(path), name in recorded):
            case "pytree":
                found.pytrees[name] = path
            case "other":
                found.others[name] = path
            case _:
                found.foreign.append(path)
    strangers = sorted(n for n in step.files - STEP_SIDECARS if not is_record(n))
    found.foreign.extend(step.path / name for name in strangers)
    found.absent.extend(sorted(set(recorded) - step.folders))
    return found


def foreign_in_item(item: Listing) -> list[Path]:
    """Files of a pytree item's directory, and of an OCDBT item also folders, that Orbax does not know."""
    strangers = sorted(item.files - ITEM_SIDECARS - STEP_SIDECARS)
    if item.files.intersection(ARRAY_DOCUMENTS):  # a bare array, which stands among the sidecars
        strangers = [n for n in strangers if n not in ARRAY_DOCUMENTS and not _CHUNK.fullmatch(n)]
    found = [item.path / name for name in strangers if not is_record(name)]
    if "manifest.ocdbt" in item.files:  # without it, folders are leaves
        known = {"d", "array_metadatas", "ocdbt_data", "ocdbt_meta"}
        data = (PROCESS_PREFIX, DONOR_PREFIX)
        folders = (n for n in sorted(item.folders - known) if not n.startswith(data))
        found.extend(item.path / name for name in folders)
    return found


def item_handlers(step: Listing) -> dict[str, str] | str | None:
    """``item_handlers`` of ``_CHECKPOINT_METADATA``: by item, one for a flat checkpoint, or None if not recorded.

    A file that cannot be understood records nothing: what stands in the step tells as well, to Orbax too.

    Raises:
        CheckpointError: the file cannot be read, or is a pointer to one that is elsewhere.
    """
    mark = step.path / V1_MARK
    is_there = V1_MARK in step.files and (not filesystem.is_link(mark) or filesystem.exists(mark))
    if is_there:  # only Orbax reads it, and not where a link leads nowhere
        refuse_pointer(mark)
    if STEP_METADATA not in step.files:
        return None
    document, _ = step_metadata(step.path)
    handlers = document.get("item_handlers")
    if isinstance(handlers, dict):
        return {str(name): str(handler) for name, handler in handlers.items()}
    return handlers if isinstance(handlers, str) else None


def step_metadata(step: Path) -> tuple[dict[str, Any], str]:
    """``_CHECKPOINT_METADATA`` of a directory that has it, and why it cannot be understood, '' if it can.

    Raises:
        CheckpointError: the file cannot be read, or is a pointer to one that is elsewhere.
    """
    path = step / STEP_METADATA
    try:
        raw = read_small(path)
    except OSError as error:
        raise unreadable(path, error) from None
    try:
        return decode_python_json(raw, type=dict[str, Any]), ""
    except (msgspec.DecodeError, ValueError) as error:
        refuse_pointer(path)
        return {}, str(error)


def handler_kind(handler: str | None) -> str | None:
    """``pytree``, ``other``, or None where the handler does not tell: the user's own, or one that wraps any other.

    Trees that v1 saved in parts (``partial.save``) are recorded with the handler of stateful objects.
    """
    name = (handler or "").rsplit(".", 1)[-1]
    if "PyTree" in name or "Standard" in name:
        return "pytree"
    known = ("Json", "Proto", "Array", "RandomKey", "Metrics", "Composite")
    return "other" if name.startswith(known) or "RandomKey" in name else None


def _content_kind(item: Listing, is_recorded: bool) -> str | None:
    """The same from what stands in the item's directory; None for a folder that is no item."""
    if holds_pytree(item):
        return "pytree"
    plain = item.files - {"commit_success.txt"}
    holds_json = bool(plain) and plain <= _JSON_FILES
    holds_key = any(f"{name}_metadata" in item.folders for name in item.folders)
    holds_array = item.folders == {"checkpoint"} and not plain
    if is_recorded or holds_json or holds_key or holds_array or item.path.name == "descriptor":
        return "other"
    return None


def holds_items(listing: Listing) -> bool:
    """True if a folder is a step of items: by its files, or its name, where Orbax up to 0.5.10 left nothing else."""
    if holds_pytree(listing):
        return False
    if listing.files & {STEP_METADATA, V1_MARK}:
        return True
    named = step_name(listing.path.name)
    return named is not None and not named.prefix and bool(step_items(listing).pytrees)


def is_step(listing: Listing) -> bool:
    """True if the directory is a step or a flat checkpoint, finished or not."""
    if holds_pytree(listing) or listing.files & {STEP_METADATA, V1_MARK}:
        return True
    found = step_items(listing)
    items = found.names + [n for n in map(unfinished_name, found.unfinished) if n]
    # Folders that are all called like steps make this a root, unless its own name is a plain number.
    own = step_name(listing.path.name)
    return any(step_name(name) is None for name in items) or bool(items and own and not own.prefix)
