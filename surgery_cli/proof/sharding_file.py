"""``_sharding`` held against itself: what Orbax could not make a sharding of."""

from __future__ import annotations

import base64
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from surgery_cli.inputs.json_decoding import decode_json
from surgery_cli.proof.damaged_text import json_object, resembled
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.open.item import PytreeItem, StoredLeaf
from surgery_cli.store.orbax.sidecars import SHARDING, sharding_key
from surgery_cli.tree.devices import DEVICE
from surgery_cli.tree.paths import LeafPath, stored_name
from surgery_cli.tree.specs import LeafKind
from surgery_cli.words.lists import listed, quoted
from surgery_cli.words.notes import Consequence, Note
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.quantities import counted

_PLATFORMS: Final = frozenset({"cpu", "gpu", "cuda", "rocm", "tpu", "TFRT_CPU_", "TPU_"})
STILL_RESTORED: Final = "Orbax restores only into a target that says shardings"
_SHARDED: Final = (LeafKind.ARRAY, LeafKind.KEY)
_SHOWN_LEAVES: Final = 3
_AXIS_TYPES: Final = frozenset({"AxisType.Auto", "AxisType.Explicit", "AxisType.Manual"})


def device_notes(checkpoint: Checkpoint) -> list[Note]:
    """What a restore without shardings would ask for that metadata cannot tell from damage: another device."""
    notes: list[Note] = []
    for item in checkpoint.items.values():
        if isinstance(item, PytreeItem):
            document, _ = json_object(item.directory / SHARDING)
            texts = {text for text in (document or {}).values() if isinstance(text, str)}
            single = sorted(found for text in texts if (found := _single_device(text)))
            if len(single) > 1:
                notes.append(
                    Consequence(
                        DocsPage.CHECKED_BY_VERIFY,
                        f"`{SHARDING}` names several devices for leaves of one: {', '.join(single)};"
                        " a restore without shardings needs all of them",
                    )
                )
    return notes


def lacks_shardings(item: PytreeItem) -> bool:
    """True if ``_sharding`` is not there, and stood there: Orbax writes it before ``array_metadatas``, by default."""
    sidecars = item.sidecars
    if SHARDING in sidecars.found or not sidecars.array_metadata_files:
        return False
    return any(True for _ in _sharded(item))


def lacking_entries(item: PytreeItem) -> list[str]:
    """The leaves of which a ``_sharding`` that stands there and is understood says nothing."""
    document, _ = json_object(item.directory / SHARDING)
    return [
        str(path)
        for path, leaf in _sharded(item)
        if document is not None and _key(path) not in document
    ]


def lacking_notes(checkpoint: Checkpoint) -> list[Note]:
    """What a tree is still good for of which ``_sharding`` is lost, was not saved, or says nothing of some leaves."""
    notes: list[Note] = []
    for name, item in checkpoint.items.items():
        if not isinstance(item, PytreeItem):
            continue
        where = f" in '{name}'" if name else ""
        if lacks_shardings(item):
            said = f"there is no `{SHARDING}`{where}: {STILL_RESTORED}"
            notes.append(Consequence(DocsPage.CHECKED_BY_VERIFY, said))
        elif lacking := lacking_entries(item):
            said = f"`{SHARDING}`{where} has no entry for {quoted(lacking, _SHOWN_LEAVES)}: {STILL_RESTORED}"
            notes.append(Consequence(DocsPage.CHECKED_BY_VERIFY, said))
    return notes


def _sharded(item: PytreeItem) -> Iterator[tuple[LeafPath, StoredLeaf]]:
    """The leaves that Orbax gives a sharding to."""
    return (
        (path, leaf)
        for path, leaf in item.leaves.items()
        if leaf.array is not None and leaf.spec.kind in _SHARDED
    )


def _key(path: LeafPath) -> str:
    return sharding_key(stored_name(path))


def _single_device(text: str) -> str:
    try:
        found = decode_json(text)
    except msgspec.DecodeError:
        return ""
    return str(found.get("device_str") or "") if isinstance(found, dict) else ""


def sharding_faults(item: PytreeItem) -> Iterator[tuple[str, str]]:
    """Orbax restores with these where it is given no sharding, and fails on an entry that it cannot read."""
    document, fault = json_object(item.directory / SHARDING)
    if fault:
        yield SHARDING, f"{fault}; {STILL_RESTORED}"
    if document is None:
        return
    said = ((path, leaf, document.get(_key(path), "")) for path, leaf in _sharded(item))
    yield from ((SHARDING, why) for why in _entry_faults(said))
    lacking = lacking_entries(item)
    known = {stored_name(path) for path in item.leaves}
    for key in document:
        name = _decoded_key(key)
        if name is None or (lacking and name not in known):
            yield SHARDING, f"an entry is called '{key}', which is no name of a leaf"


def _entry_faults(said: Iterable[tuple[LeafPath, StoredLeaf, object]]) -> Iterator[str]:
    """What is wrong with what is ``said`` of leaves in ``_sharding``."""
    judged: dict[tuple[str, Sequence[int] | None], str] = {}
    for path, leaf, text in said:
        if not isinstance(text, str):
            yield f"of '{path}': no text stands there; {STILL_RESTORED}"
            continue
        # of typed keys, what is stored has an axis more
        shape = leaf.spec.shape if leaf.spec.kind is LeafKind.ARRAY else None
        if (text, shape) not in judged:
            judged[text, shape] = sharding_fault(text, shape) if text else ""
        if judged[text, shape]:
            yield f"of '{path}': {judged[text, shape]}"


def fault_notes(checkpoint: Checkpoint) -> list[Consequence]:
    """What is wrong with entries of ``_sharding``: of leaves that are not laid out anew they come along."""
    notes = []
    for name, item in checkpoint.items.items():
        if not isinstance(item, PytreeItem) or not item.sidecars.sharding:
            continue
        known = ((path, leaf, leaf.spec.sharding or "") for path, leaf in _sharded(item))
        if faults := list(_entry_faults(known)):
            where = f" in '{name}'" if name and len(checkpoint.items) > 1 else ""
            said = f"`{SHARDING}`{where} has what JAX refuses: {listed(faults, _SHOWN_LEAVES)}; {STILL_RESTORED}"
            notes.append(Consequence(DocsPage.CHECKED_BY_VERIFY, said))
    return notes


def sharding_fault(text: str, array: Sequence[int] | None = None) -> str:
    """Why Orbax could not make a sharding of the text; '' if it can, where the devices are there.

    ``array``: the shape that is to be sharded, if it is known.
    """
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
        is_alike = platform in _PLATFORMS or resembled(platform, _PLATFORMS) is not None
        is_alike |= (
            resembled(plain, {name if name.endswith("_") else f"{name}:0" for name in _PLATFORMS})
            is not None
        )
        if is_alike and not DEVICE.fullmatch(device):
            return f"it names a device '{device}'"
        return ""
    if kind == "NamedSharding":
        return _named_fault(found) or _misfit(found, array)
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
    is_list = isinstance(types, list) and len(types) == len(axes)
    if types is not None and not (is_list and all(str(one) in _AXIS_TYPES for one in types)):
        return f"the types of its axes are {types}"
    for name in found:
        known = resembled(name, {"axis_types", "device_mesh", "memory_kind"})
        if known is not None:
            return f"it has a field '{name}': '{known}', damaged"
    mesh = found.get("device_mesh")
    if mesh is None:
        return ""
    count = math.prod(shape)
    ids = list(_device_ids(mesh.get("mesh") if isinstance(mesh, dict) else None))
    if len(ids) != count or len(set(ids)) != count:
        return f"its mesh of shape {shape} has the devices {ids}"
    return ""


def _misfit(found: dict[str, Any], array: Sequence[int] | None) -> str:
    """Why JAX would not spread an array of this shape so, by a mesh and a spec that are right in themselves."""
    sizes = dict(zip(found["axis_names"], found["shape"], strict=True))
    parts = [part if isinstance(part, list) else [part] for part in found["partition_spec"]]
    while parts and parts[-1] in ([], [None]):  # of axes that are not there, they say nothing
        parts.pop()
    used = [name for part in parts for name in part if name is not None]
    twice = next((name for name, count in Counter(used).items() if count > 1), None)
    if twice is not None:
        return f"it shards over '{twice}' twice"
    if array is None:
        return ""
    if len(parts) > len(array):
        return f"it speaks of {counted(len(parts), 'axis', 'axes')}, and the array has {len(array)}"
    for axis, (part, size) in enumerate(zip(parts, array, strict=False)):
        count = math.prod(sizes[name] for name in part if name is not None)
        if size % count:
            return f"axis {axis} is cut into {count}, and {size} is no multiple of that"
    return ""


def _device_ids(mesh: Any) -> Iterator[Any]:
    if isinstance(mesh, list):
        for part in mesh:
            yield from _device_ids(part)
    elif isinstance(mesh, dict) and isinstance(mesh.get("id"), int):
        yield mesh["id"]


def _decoded_key(key: str) -> str | None:
    """The stored name of a key of ``_sharding``; None if it is none."""
    try:
        name = base64.b64decode(key, altchars=b"-_", validate=True).decode()
    except ValueError:
        return None
    return name if sharding_key(name) == key else None
