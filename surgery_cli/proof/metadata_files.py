"""Metadata held against itself: what Orbax could not read of the files beside the arrays, or would take for another.

Every array names itself in up to four places, and Orbax writes few kinds of text there. Where no digest is on record,
their agreement is all that can be known of these files.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from surgery_cli.errors import CheckpointError
from surgery_cli.inputs.json_decoding import decode_json
from surgery_cli.store import filesystem
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.open.item import PytreeItem
from surgery_cli.store.orbax.sidecars import (
    ARRAY_METADATAS,
    EMPTY_TYPES,
    METADATA,
    SHARDING,
    TREE,
    VALUE_TYPES,
    sharding_key,
)
from surgery_cli.store.orbax.tree_metadata import entry_key
from surgery_cli.tree.paths import LeafPath, stored_name
from surgery_cli.tree.specs import LeafKind

Fault = tuple[str, str]
"""A file, relative to the step, and what is wrong with it."""

# orbax-checkpoint: the fields that releases up to 0.12 write, of the item and of the step.
_ITEM_FIELDS: Final = frozenset(
    {
        TREE,
        "use_ocdbt",
        "use_zarr3",
        "store_array_data_equal_to_fill_value",
        "custom_metadata",
        "value_metadata_tree",
    }
)
_VALUE_TYPES: Final = EMPTY_TYPES | frozenset(VALUE_TYPES.values())
_STEP_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "item_handlers": (dict, str),
    "metrics": (dict,),
    "performance_metrics": (dict,),
    "init_timestamp_nsecs": (int,),
    "commit_timestamp_nsecs": (int,),
    "custom_metadata": (dict,),
}
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
_PLATFORMS: Final = frozenset({"cpu", "gpu", "cuda", "rocm", "tpu", "TFRT_CPU_", "TPU_"})
_DEVICE: Final = re.compile(r"(cpu|gpu|cuda|rocm|tpu):\d+|TFRT_CPU_\d+|TPU_\d+\(process=\d+,.*\)")
_KEY_IMPLS: Final = frozenset({"threefry2x32", "rbg", "unsafe_rbg", "fry", "urbg"})
_JSON_FILES: Final = ("metrics", "metadata", "data.json", "_ROOT_METADATA")
_AXIS_TYPES: Final = frozenset({"AxisType.Auto", "AxisType.Explicit", "AxisType.Manual"})


def metadata_faults(checkpoint: Checkpoint) -> list[Fault]:
    """What is wrong with the metadata of the items that were opened, and of the step that holds them."""
    place = checkpoint.location.step_directory or checkpoint.location.root
    found: list[Fault] = []
    if filesystem.is_folder(place):
        found += _of_step(place)
    for item in checkpoint.items.values():
        if isinstance(item, PytreeItem):
            found += _below(place, item.directory, _of_item(item))
    others = [*checkpoint.location.other_items.values(), *checkpoint.location.root_files]
    return list(dict.fromkeys(found + faults_beside(checkpoint, others)))


def faults_beside(checkpoint: Checkpoint, paths: Iterable[Path]) -> list[Fault]:
    """What is wrong with items that are not opened, or with files of the root."""
    place = checkpoint.location.step_directory or checkpoint.location.root
    return [fault for path in paths for fault in _of_side_item(path, place)]


def _below(place: Path, folder: Path, faults: Iterable[Fault]) -> list[Fault]:
    """Faults of the files of a folder, with their paths as they are from the step."""
    where = folder.relative_to(place) if folder.is_relative_to(place) else folder
    return [(str(where / file), why) for file, why in faults]


def device_notes(checkpoint: Checkpoint) -> list[str]:
    """What a restore without shardings would ask for that metadata cannot tell from damage: another device."""
    notes = []
    for item in checkpoint.items.values():
        if isinstance(item, PytreeItem):
            document, _ = _document(item.directory / SHARDING)
            texts = {text for text in (document or {}).values() if isinstance(text, str)}
            single = sorted(found for text in texts if (found := _single_device(text)))
            if len(single) > 1:
                notes.append(
                    f"`{SHARDING}` names several devices for leaves of one: {', '.join(single)};"
                    " a restore without shardings needs all of them"
                )
    return notes


def _single_device(text: str) -> str:
    try:
        found = decode_json(text)
    except msgspec.DecodeError:
        return ""
    return str(found.get("device_str") or "") if isinstance(found, dict) else ""


def _of_item(item: PytreeItem) -> Iterator[Fault]:
    yield from _of_tree(item)
    yield from _of_arrays(item)
    yield from _of_sharding(item)
    yield from _of_array_metadatas(item)


def _of_tree(item: PytreeItem) -> Iterator[Fault]:
    """``_METADATA`` says each path twice, and each field under a name of its own."""
    document, fault = _document(item.directory / METADATA)
    if fault:
        yield METADATA, fault
    if document is None:
        return
    for name in document:
        if (known := _resembled(name, _ITEM_FIELDS)) is not None:
            yield METADATA, f"a field is called '{name}': '{known}', damaged"
    for key, entry in document.get(TREE, {}).items():
        if isinstance(entry, dict):
            for fault in _entry_faults(key, entry):
                yield METADATA, fault


def _entry_faults(key: str, entry: dict[str, Any]) -> Iterator[str]:
    keys = [record.get("key") for record in entry.get("key_metadata", [])]
    if key != entry_key(LeafPath([str(one) for one in keys])):
        yield f"an entry is called {key}, and its keys are {keys}"
    value = entry.get("value_metadata")
    if not isinstance(value, dict):
        return
    if (known := _resembled(str(value.get("value_type")), _VALUE_TYPES)) is not None:
        yield f"{key} is of the type '{value['value_type']}': '{known}', damaged"
    if not isinstance(value.get("skip_deserialize"), bool):
        yield f"{key} does not say whether it is skipped (`skip_deserialize`)"
    for name in value:
        known = _resembled(name, {"value_type", "skip_deserialize", "write_shape"})
        if known is not None:
            yield f"{key} has a field '{name}': '{known}', damaged"


def _of_arrays(item: PytreeItem) -> Iterator[Fault]:
    """What Orbax never writes into the document of an array, and would read as something else."""
    for path, leaf in item.leaves.items():
        if leaf.array is None:
            continue
        document = leaf.array.document
        pairs = zip(document.write_shape, document.shape, strict=True)
        if any(write > size for write, size in pairs if size):
            shapes = f"{list(document.shape)}, in chunks of {list(document.write_shape)}"
            yield leaf.array.name, f"'{path}' has the shape {shapes}"
        if leaf.spec.kind is LeafKind.KEY and document.dtype != "uint32":
            yield leaf.array.name, f"'{path}' is a random key, and stored as {document.dtype}"
        if b'"dtype":">' in document.raw:
            yield leaf.array.name, f"'{path}' is stored with its bytes in the other order"


def _of_sharding(item: PytreeItem) -> Iterator[Fault]:
    """Orbax restores with these where it is given no sharding, and fails on an entry that is lacking or unknown."""
    document, fault = _document(item.directory / SHARDING)
    if fault:
        yield SHARDING, fault
    if document is None:
        return
    judged: dict[str, str] = {}
    for path, leaf in item.leaves.items():
        if leaf.array is None or leaf.spec.kind not in (LeafKind.ARRAY, LeafKind.KEY):
            continue
        text = document.get(sharding_key(stored_name(path)))
        if not isinstance(text, str):
            yield SHARDING, f"it has no entry for '{path}'"
            continue
        if text not in judged:
            judged[text] = _sharding_fault(text) if text else ""
        if judged[text]:
            yield SHARDING, f"of '{path}': {judged[text]}"
    for key in document:
        if _decoded_key(key) is None:
            yield SHARDING, f"an entry is called '{key}', which is no name of a leaf"


def _sharding_fault(text: str) -> str:
    """Why Orbax could not make a sharding of the text; '' if it can, where the devices are there."""
    try:
        found = decode_json(text)
    except msgspec.DecodeError as error:
        return f"not JSON: {error}"
    kind = found.get("sharding_type") if isinstance(found, dict) else None
    if kind == "SingleDeviceSharding":
        device = found.get("device_str")
        if not isinstance(device, str):
            return "it names no device (`device_str`)"
        platform = re.split(r"[:\d]", device, maxsplit=1)[0]
        plain = re.sub(r"\d+", "0", device)
        is_alike = platform in _PLATFORMS or _resembled(platform, _PLATFORMS) is not None
        is_alike |= (
            _resembled(plain, {name if name.endswith("_") else f"{name}:0" for name in _PLATFORMS})
            is not None
        )
        if is_alike and not _DEVICE.fullmatch(device):
            return f"it names a device '{device}'"
        return ""
    if kind == "NamedSharding":
        return _named_fault(found)
    return f"its type is {kind!r}, which Orbax does not know"


def _named_fault(found: dict[str, Any]) -> str:
    shape, axes, spec = (found.get(k) for k in ("shape", "axis_names", "partition_spec"))
    for name, value in (("shape", shape), ("axis_names", axes), ("partition_spec", spec)):
        if not isinstance(value, list):
            return f"it has no list `{name}`"
    assert isinstance(shape, list)
    assert isinstance(axes, list)
    assert isinstance(spec, list)
    if len(shape) != len(axes) or not all(isinstance(n, int) and n > 0 for n in shape):
        return f"a mesh of shape {shape} has no axes {axes}"
    used = [name for part in spec for name in (part if isinstance(part, list) else [part])]
    for name in used:
        if name is not None and name not in axes:
            return f"it shards over '{name}', and the mesh has {axes}"
    types = found.get("axis_types")
    if types is not None and not (len(types) == len(axes) and set(types) <= _AXIS_TYPES):
        return f"the types of its axes are {types}"
    for name in found:
        known = _resembled(name, {"axis_types", "device_mesh", "memory_kind"})
        if known is not None:
            return f"it has a field '{name}': '{known}', damaged"
    mesh = found.get("device_mesh")
    if mesh is None:
        return ""
    count = 1
    for size in shape:
        count *= size
    ids = list(_device_ids(mesh.get("mesh") if isinstance(mesh, dict) else None))
    if len(ids) != count or len(set(ids)) != count:
        return f"its mesh of shape {shape} has the devices {ids}"
    return ""


def _device_ids(mesh: Any) -> Iterator[Any]:
    if isinstance(mesh, list):
        for part in mesh:
            yield from _device_ids(part)
    elif isinstance(mesh, dict) and isinstance(mesh.get("id"), int):
        yield mesh["id"]


def _of_array_metadatas(item: PytreeItem) -> Iterator[Fault]:
    """How each array is cut, and what a typed key is; the arrays' own documents say the first again."""
    arrays = {leaf.array.name: leaf for leaf in item.leaves.values() if leaf.array is not None}
    for name in item.sidecars.array_metadata_files:
        file = f"{ARRAY_METADATAS}/{name}"
        document, fault = _document(item.directory / file)
        if fault:
            yield file, fault
        if document is None:
            continue
        entries = document.get("array_metadatas")
        if not isinstance(entries, list):
            yield file, "it has no list `array_metadatas`"
            continue
        for entry in entries:
            found = entry.get("array_metadata") if isinstance(entry, dict) else None
            if fault := _array_fault(found, arrays):
                yield file, fault


def _array_fault(found: Any, arrays: dict[str, Any]) -> str:
    name = found.get("param_name") if isinstance(found, dict) else None
    if not isinstance(name, str):
        return "an entry names no array (`array_metadata`, `param_name`)"
    if name not in arrays:
        return f"an entry is called '{name}', which is no array here"
    spec = arrays[name].spec
    for field in ("write_shape", "chunk_shape"):
        shape = found.get(field)
        if not isinstance(shape, list) or len(shape) != len(spec.shape):
            return f"'{name}' has the {field} {shape} there, and the shape {list(spec.shape)}"
        if 0 in spec.shape and 0 not in shape:
            return f"'{name}' has the {field} {shape} there, and no elements where it is stored"
    chunk = found["chunk_shape"]  # what a process wrote at once may be several of them
    if spec.chunk_shape is not None and chunk != list(spec.chunk_shape):
        return f"'{name}' has chunks of {chunk} there, and of {list(spec.chunk_shape)} where it is stored"
    extra = found.get("ext_metadata")
    if any(_resembled(field, {"ext_metadata"}) is not None for field in found):
        return f"'{name}' has damaged fields: {', '.join(found)}"
    if extra is None:
        return ""
    if not isinstance(extra, dict) or _resembles_any(extra, {"random_key_impl"}):
        return f"'{name}' has the `ext_metadata` {extra}"
    known = _resembled(str(extra.get("random_key_impl")), _KEY_IMPLS)
    if known is not None:
        return (
            f"'{name}' is a random key of the kind '{extra['random_key_impl']}': '{known}', damaged"
        )
    return ""


def _of_step(place: Path) -> Iterator[Fault]:
    """``_CHECKPOINT_METADATA``: the types that Orbax asks for, and names that can be known."""
    file = "_CHECKPOINT_METADATA"
    document, fault = _document(place / file)
    if fault:
        yield file, fault
    if document is None:
        return
    for name, value in document.items():
        known = _resembled(name, _STEP_TYPES)
        if known is not None:
            yield file, f"a field is called '{name}': '{known}', damaged"
        elif value is not None and not isinstance(value, _STEP_TYPES.get(name, (object,))):
            yield file, f"'{name}' is {value!r}"
    handlers = document.get("item_handlers")
    named = handlers if isinstance(handlers, dict) else {"": handlers}
    folders = {entry.name for entry in filesystem.entries(place) if entry.is_folder}
    for item, handler in named.items():
        unrecorded = _resembled(item, folders - named.keys())
        if item and item not in folders and unrecorded is not None:
            yield file, f"it has an item '{item}', and what is there is called '{unrecorded}'"
        if handler is not None and re.search(r"[^A-Za-z0-9_.]", str(handler)):
            yield file, f"the handler '{handler}' is no name"
        for word in str(handler).split("."):
            if (known := _resembled(word, _HANDLER_WORDS)) is not None:
                yield file, f"the handler '{handler}' is no known one: '{known}', damaged"


def _of_side_item(path: Path, place: Path) -> Iterator[Fault]:
    """Items that are not opened, and files of the root: JSON, and trees that were not chosen or belong to a key."""
    if not filesystem.is_folder(path):
        yield from _of_json(path, place)
        return
    for prefix, entries in filesystem.below(path):
        folder, names = path / prefix, {entry.name for entry in entries}
        if names & {METADATA, ARRAY_METADATAS}:
            try:
                item = PytreeItem(folder)
                yield from _below(place, folder, _of_item(item))
                for leaf in item.leaves:
                    item.open(leaf)
            except CheckpointError as error:
                problem = error.problems[0]
                yield from _below(place, folder, [("", problem.why or problem.what)])
        for name in sorted(names):
            yield from _of_json(folder / name, place)


def _of_json(file: Path, place: Path) -> Iterator[Fault]:
    if file.name in _JSON_FILES and filesystem.is_file(file):
        try:
            decode_json(filesystem.read(file))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            yield from _below(place, file.parent, [(file.name, f"not JSON: {error}")])


def _document(path: Path) -> tuple[dict[str, Any] | None, str]:
    """A JSON object, or None; and what is wrong with the file, '' if it is well or not there."""
    if not filesystem.is_file(path):
        return None, ""
    try:
        return decode_json(filesystem.read(path), type=dict[str, Any]), ""
    except (msgspec.DecodeError, UnicodeDecodeError, OSError) as error:
        return None, f"not a JSON object: {error}"


def _decoded_key(key: str) -> str | None:
    """The stored name of a key of ``_sharding``; None if it is none."""
    try:
        name = base64.b64decode(key, altchars=b"-_", validate=True).decode()
    except ValueError:
        return None
    return name if sharding_key(name) == key else None


def _resembled(name: str, known: Collection[str]) -> str | None:
    """The known name that ``name`` is but for one character; None if it is known itself, or resembles none."""
    if name in known:
        return None
    for one in known:
        if len(one) == len(name) and sum(a != b for a, b in zip(one, name, strict=True)) == 1:
            return one
    return None


def _resembles_any(names: Collection[str], known: Collection[str]) -> bool:
    return any(_resembled(name, known) is not None for name in names)
