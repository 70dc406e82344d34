"""The small files about arrays, `_sharding` and `array_metadatas`: what of them is true of those that are there."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from surgery_cli.errors import CheckpointError, UnseenError
from surgery_cli.inputs.json_decoding import decode_python_json
from surgery_cli.proof.sharding_file import sharding_fault
from surgery_cli.proof.tree_files import array_entry_fault
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.small_files import read_small
from surgery_cli.store.orbax.sidecars import (
    ARRAY_METADATAS,
    SHARDING,
    Entry,
    is_process_file,
    sharding_key,
)
from surgery_cli.store.orbax.zarr import ArrayDocument

NO_LEAF: Final = "no leaf is called so"


def sharding_names(item: Path, faults: dict[str, str]) -> set[str]:
    """The names of the arrays that ``_sharding`` has; what is wrong with it goes into ``faults``."""
    document = json_at(item, SHARDING, faults)
    found = set()
    for key in document if isinstance(document, dict) else ():
        try:
            found.add(base64.urlsafe_b64decode(key).decode())
        except (binascii.Error, UnicodeDecodeError, ValueError):
            faults[SHARDING] = f"{key!r} is no name"
    return found


def array_records(item: Path, faults: dict[str, str]) -> dict[str, list[Entry]]:
    """What every file in ``array_metadatas`` says of each array that it names."""
    found: dict[str, list[Entry]] = {}
    for entry in filesystem.entries_if_any(item / ARRAY_METADATAS):
        name = f"{ARRAY_METADATAS}/{entry.name}"
        if not is_process_file(entry.name):
            faults[name] = "Orbax refuses names there that are not of a process"
            continue
        document = json_at(item, name, faults)
        try:
            for record in _records(document):
                found.setdefault(str(record["param_name"]), []).append(record)
        except (AttributeError, KeyError, TypeError) as error:
            if document is not None:
                faults[name] = f"{type(error).__name__}: {error}"
    return found


def _records(document: Any) -> Iterator[Entry]:
    for one in document["array_metadatas"]:
        yield one["array_metadata"]


def side_files(item: Path) -> list[str]:
    """The files about arrays that stand there, by path from the item."""
    names = [entry.name for entry in filesystem.entries_if_any(item / ARRAY_METADATAS)]
    found = [f"{ARRAY_METADATAS}/{name}" for name in names if is_process_file(name)]
    return [SHARDING, *found] if filesystem.is_file(item / SHARDING) else found


def what_holds(
    item: Path, file: str, arrays: Mapping[str, ArrayDocument], entries: Mapping[str, Entry]
) -> tuple[dict[str, Any] | None, dict[str, str]]:
    """A file about arrays with what is true of these; and by name, what it says of others of them that is not.

    ``entries`` are those of ``_METADATA`` by stored name, of all leaves. None for a file that cannot be understood.
    """
    document = json_at(item, file, {})
    if not isinstance(document, dict):
        return None, {}
    if file == SHARDING:
        return _shardings(document, arrays, entries)
    try:
        records = {str(one.get("param_name")): one for one in _records(document)}
    except (AttributeError, KeyError, TypeError):
        return None, {}
    kept: list[Entry] = []
    faults = dict.fromkeys(records.keys() - entries.keys(), NO_LEAF)
    for name in filter(arrays.__contains__, records):
        fault = array_entry_fault(records[name], arrays)
        true = _anew(records[name], arrays[name], entries[name]) if fault else records[name]
        kept += [] if true is None else [{"array_metadata": true}]
        if fault:
            faults[name] = fault
    return {**document, "array_metadatas": kept}, faults


def _shardings(
    document: Mapping[str, Any],
    arrays: Mapping[str, ArrayDocument],
    entries: Mapping[str, Entry],
) -> tuple[dict[str, Any], dict[str, str]]:
    judged: dict[tuple[str, tuple[int, ...]], str] = {}
    names = {sharding_key(name): name for name in entries}
    kept, faults = {}, dict.fromkeys(document.keys() - names.keys(), NO_LEAF)
    for key, text in document.items():
        if names.get(key) not in arrays:
            continue
        if not isinstance(text, str):
            faults[names[key]] = f"its sharding is {text!r}"
            continue
        asked = (text, arrays[names[key]].shape)
        if asked not in judged:
            judged[asked] = sharding_fault(*asked) if text else ""
        if judged[asked]:
            faults[names[key]] = judged[asked]
        else:
            kept[key] = text
    return kept, faults


def _anew(record: Entry, document: ArrayDocument, entry: Entry) -> Entry | None:
    """What is to be said of an array, by what is stored, and as far as that is sound by what was said of it."""
    name, extra = str(record["param_name"]), record.get("ext_metadata")
    said = [record.get("write_shape"), entry.get("write_shape")]
    shape = next(filter(document.can_be_of, said), list(document.write_shape))
    new = {"param_name": name, "write_shape": shape, "chunk_shape": list(document.chunk_shape)}
    sound = ({**new, "ext_metadata": one} for one in (extra, None))
    return next((one for one in sound if not array_entry_fault(one, {name: document})), None)


def json_at(item: Path, name: str, faults: dict[str, str]) -> Any:
    """The document of a small file; None if it is not there, or with what is wrong with it in ``faults``."""
    if not filesystem.is_file(item / name):
        return None
    try:
        return decode_python_json(read_small(item / name))
    except UnseenError:
        raise
    except (msgspec.MsgspecError, CheckpointError, ValueError) as error:
        faults[name] = str(error).split("\n", 1)[0]
        return None
