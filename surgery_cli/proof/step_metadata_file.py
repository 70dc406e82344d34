"""``_CHECKPOINT_METADATA`` of a step held against what Orbax writes there."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from surgery_cli.proof.damaged_text import json_object, resembled
from surgery_cli.proof.side_items import json_fault
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import Listing, holds_pytree
from surgery_cli.store.filesystem.names import step_name
from surgery_cli.store.filesystem.protocol import COMMIT_MARK
from surgery_cli.store.locate.items import STEP_METADATA, V1_MARK, item_handlers, step_items
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.orbax.sidecars import METADATA
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence, Note
from surgery_cli.words.pages import DocsPage

# orbax-checkpoint: the fields that releases up to 0.12 write of a step.
_STEP_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "item_handlers": (dict, str),
    "metrics": (dict,),
    "performance_metrics": (dict,),
    "init_timestamp_nsecs": (int,),
    "commit_timestamp_nsecs": (int,),
    "custom_metadata": (dict,),
}
NOT_THERE: Final = f"it is not there, and `{V1_MARK}` is: v1 of Orbax refuses the step without"
STILL_RESTORED: Final = (
    "Orbax restores every item for which a script gives arguments, or a target, as if the file were not there; which"
    " handler wrote each, and custom metadata, are lost"
)
REFUSED: Final = "Orbax's manager refuses the step"
_MODULES: Final = ("array", "composite", "json", "proto", "pytree", "random_key", "standard")
_CLASSES: Final = ("Array", "Composite", "Json", "Proto", "PyTree", "Standard")
_HANDLER_WORDS: Final = frozenset(
    [
        *("orbax", "checkpoint", "_src", "handlers", "experimental", "v1"),
        *("pytree_handler", "json_handler", "PyTreeHandler", "JsonHandler"),
        *("JaxRandomKeyCheckpointHandler", "NumpyRandomKeyCheckpointHandler"),
        *(f"{name}_checkpoint_handler" for name in _MODULES),
        *(f"{name}CheckpointHandler" for name in _CLASSES),
    ]
)


def lacks_step_metadata(place: Path) -> bool:
    """True if v1 of Orbax recognises a step as one of its own, and misses what it says of it."""
    is_there = filesystem.exists(place / STEP_METADATA)
    return not is_there and filesystem.is_file(place / V1_MARK)


def unreadable_notes(checkpoint: Checkpoint) -> list[Note]:
    """A file that cannot be read fails only the restore that asks for nothing by name."""
    place = checkpoint.location.step_directory or checkpoint.location.root
    fault = _unreadable(place / STEP_METADATA) if filesystem.is_folder(place) else ""
    if not fault:
        return []
    return [
        Consequence(
            DocsPage.CHECKED_BY_VERIFY,
            f"`{STEP_METADATA}` is damaged ({fault}): {STILL_RESTORED}",
        )
    ]


def _unreadable(file: Path) -> str:
    """Why a file is no JSON at all, which Orbax takes for none; '' if it is any, or nothing stands there.

    Source: ``metadata/checkpoint.py`` of orbax-checkpoint.
    """
    _, fault = json_object(file)
    return fault if fault and json_fault(file) else ""


_SINCE_HANDLERS: Final = "custom_metadata"
"""A field of `_METADATA` that releases write since 0.11.5; since 0.10 they write which handlers saved the items."""
_LOOKED_AT: Final = 4
"""Of the steps beside: in a bucket, each is a request."""
_ONLY_WITH_ARGUMENTS: Final = (
    "Orbax restores the step only with arguments; a manager's `restore(step)` alone fails"
)
WITH_HANDLERS: Final = (
    "Orbax restores the step with arguments, or by a manager that was made with handlers for all its items; of any"
    " other one `restore(step)` alone fails"
)


def missing_notes(checkpoint: Checkpoint) -> list[Note]:
    """The file is gone that Orbax wrote into a step of items: without handlers, the restore that asks for nothing by
    name goes by it.

    Of a single tree it tells nothing that a restore needs. Releases before 0.10 wrote none, or not which handlers.
    """
    step = checkpoint.location.folder_of_items
    if step is None or filesystem.exists(step / STEP_METADATA) or lacks_step_metadata(step):
        return []
    wrote = _writer(step, [*checkpoint.location.items])
    if not wrote:
        return []
    said = f"`{STEP_METADATA}` is not there, {wrote}: {WITH_HANDLERS}, until it is copied again"
    return [Consequence(DocsPage.CHECKED_BY_VERIFY, said)]


def _writer(step: Path, items: Collection[str]) -> str:
    """What shows that Orbax wrote the file, in words; '' if nothing does."""
    for name in items:
        document, _ = json_object(step / name / METADATA)
        by_itself = filesystem.exists(step / name / STEP_METADATA)
        if document is not None and _SINCE_HANDLERS in document and not by_itself:
            return f"and the release of Orbax that saved '{name}' writes it"
    own = step_name(step.name)
    if own is None:
        return ""
    others = (name for name in filesystem.names(step.parent) if name != step.name)
    named = [(found, name) for name in others if (found := step_name(name)) is not None]
    named.sort(key=lambda pair: abs(pair[0].number - own.number))
    for found, name in named[:_LOOKED_AT]:
        document, _ = json_object(step.parent / name / STEP_METADATA)
        handlers = (document or {}).get("item_handlers")
        if isinstance(handlers, dict) and handlers.keys() & items:
            return f"and it is in step {found.number}"
    return ""


def folders_beside(checkpoint: Checkpoint) -> list[str]:
    """Folders beside the items on record, empty or not: each fails the restore that asks for all items there are.

    So does what a run of surgery builds there, or has left.
    """
    folder = checkpoint.location.folder_of_items
    listing = None if folder is None else Listing.of(folder)
    handlers = None if listing is None else item_handlers(listing)
    if listing is None or not isinstance(handlers, dict) or not handlers:
        return []
    return sorted(listing.folders - handlers.keys())


def folder_notes(checkpoint: Checkpoint) -> list[Note]:
    """What folders beside the items on record do to a restore."""
    others = folders_beside(checkpoint)
    if not others:
        return []
    named = f"{quoted(others, 4, word='and')} {'is' if len(others) == 1 else 'are'}"
    location = checkpoint.location
    are_items = location.items.keys() | location.other_items.keys() >= set(others)
    restored = WITH_HANDLERS if are_items else _ONLY_WITH_ARGUMENTS
    return [
        Consequence(
            DocsPage.CHECKED_BY_VERIFY,
            f"{named} beside the items that `{STEP_METADATA}` names: {restored}",
        )
    ]


def unmarked_notes(checkpoint: Checkpoint) -> list[Note]:
    """Items without a mark of their own, where Orbax asks for one: it restores them with their step alone."""
    location = checkpoint.location
    is_item = location.shape == "item"
    if not filesystem.needs_commit_mark(location.root):
        return []
    if location.folder_of_items is None and not is_item:
        return []
    items = [*location.items.items(), *location.other_items.items()]
    unmarked = [name for name, item in items if not filesystem.is_file(item / COMMIT_MARK)]
    if not unmarked:
        return []
    said = f"of {quoted(unmarked, 4, word='and')} there is no `{COMMIT_MARK}`"
    restored = "Orbax restores the step with all its items, and no such item by its own address"
    return [Consequence(DocsPage.CHECKED_BY_VERIFY, f"{said}: {restored}")]


def step_faults(place: Path) -> Iterator[tuple[str, str]]:
    """``_CHECKPOINT_METADATA``: the types that Orbax asks for, and names that can be known."""
    file = STEP_METADATA
    document, fault = json_object(place / file)
    if fault and not _unreadable(place / file):
        yield file, f"{fault}; {REFUSED}"
    if document is None:
        if lacks_step_metadata(place):
            yield file, NOT_THERE
        return
    refused = _refused_fields(document)
    for name, value in document.items():
        known = resembled(name, _STEP_TYPES)
        if known is not None:
            yield file, f"a field is called '{name}': '{known}', damaged"
        elif value is not None and not isinstance(value, _STEP_TYPES.get(name, (object,))):
            yield file, f"'{name}' is {value!r}"
        elif name in refused:
            why = "Orbax knows no such field, and takes none as custom where others are"
            yield file, f"a field is called '{name}': {why}"
    handlers = document.get("item_handlers")
    named = handlers if isinstance(handlers, dict) else {"": handlers}
    folders = {entry.name for entry in filesystem.entries(place) if entry.is_folder}
    listing = Listing.of(place)
    absent = () if holds_pytree(listing) else step_items(listing).absent
    for item, handler in named.items():
        unrecorded = resembled(item, folders - named.keys())
        if item and item not in folders and unrecorded is not None:
            yield file, f"it has an item '{item}', and what is there is called '{unrecorded}'"
        elif item in absent:
            yield item, f"an item that is on record (`{file}`), and not there"
        for why in _handler_faults(handler):
            yield file, why


def _refused_fields(document: Mapping[str, Any]) -> list[str]:
    """Fields that Orbax refuses: it adds the first that it does not know to an empty ``custom_metadata``, and no more.

    Source: ``InternalCheckpointMetadata.deserialize`` and ``process_unknown_key`` of orbax-checkpoint.
    """
    unknown = [name for name in document if name not in _STEP_TYPES]
    custom = document.get("custom_metadata")
    if custom is None:
        return []
    return unknown if custom else unknown[1:]


def sound_part(document: Mapping[str, Any], items: Collection[str]) -> dict[str, Any]:
    """``_CHECKPOINT_METADATA`` without what is damaged, of a step that has these items alone."""
    refused = _refused_fields(document)
    kept = {
        name: value
        for name, value in document.items()
        if resembled(name, _STEP_TYPES) is None
        and name not in refused
        and (value is None or isinstance(value, _STEP_TYPES.get(name, (object,))))
    }
    handlers = kept.get("item_handlers")
    if isinstance(handlers, dict):
        kept["item_handlers"] = {
            name: handler
            for name, handler in handlers.items()
            if name in items and not any(_handler_faults(handler))
        }
    elif any(_handler_faults(handlers)):
        del kept["item_handlers"]
    return kept


def _handler_faults(handler: object) -> Iterator[str]:
    if handler is not None and re.search(r"[^A-Za-z0-9_.]", str(handler)):
        yield f"the handler '{handler}' is no name"
    for word in str(handler).split("."):
        if (known := resembled(word, _HANDLER_WORDS)) is not None:
            yield f"the handler '{handler}' is no known one: '{known}', damaged"
