"""Safetensors: one file, or a directory of shards with or without an index, as they are read.

The whole structure is checked before a byte of data is touched. Source: the format's own description,
https://github.com/huggingface/safetensors#format.
"""

from __future__ import annotations

import math
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import msgspec

from surgery_cli.errors import CheckpointError
from surgery_cli.inputs.json_decoding import decode_json
from surgery_cli.inputs.limits import LEAVES, check_values
from surgery_cli.store import filesystem
from surgery_cli.store.files.contiguous import ContiguousArray, Segment
from surgery_cli.store.files.shards import read_shards
from surgery_cli.store.filesystem.listing import unreadable
from surgery_cli.store.locate.file_formats import SAFETENSORS_SHARDS
from surgery_cli.store.locate.lfs_pointers import refuse_pointer
from surgery_cli.store.orbax.arrays import Window
from surgery_cli.tree.dtypes import can_be_shape, item_bytes
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec, TreeSpec

LARGEST_HEADER_BYTES: Final = 100_000_000
"""The format's own limit."""

_DTYPES: Final = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "U32": "uint32",
    "I32": "int32",
    "U64": "uint64",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
}

CODES: Final = {dtype: code for code, dtype in _DTYPES.items()}
"""How the format calls the dtypes that it has."""

METADATA: Final = "__metadata__"
"""The key of a header that is no array's name."""


class _Entry(msgspec.Struct, frozen=True):
    """One tensor of a header, as it stands there."""

    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


class SafetensorsFile:
    """The tensors of a ``.safetensors`` file or of a directory of shards; each name is one key, dots and all.

    Raises:
        CheckpointError: (on first use) a header is damaged or lies, or shards and index disagree.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def arrays(self) -> dict[LeafPath, ContiguousArray]:
        """Every tensor with its place."""
        if not filesystem.is_folder(self.path):
            return read_header(self.path)
        return read_shards(self.path, SAFETENSORS_SHARDS, read_header)

    @cached_property
    def tree(self) -> TreeSpec:
        return TreeSpec({path: spec_of(array) for path, array in self.arrays.items()})

    def place_of(self, path: LeafPath) -> ContiguousArray | None:
        """Where a tensor's values stand."""
        return self.arrays.get(path)

    def read(self, path: LeafPath, window: Window | None = None) -> Any:
        """A tensor's values, or a block of them.

        Raises:
            KeyError: there is no such tensor.
            CheckpointError: the file cannot be read.
        """
        return self.arrays[path].read(window)


def spec_of(array: ContiguousArray) -> LeafSpec:
    """The spec of an array that stands in a file as it is."""
    stored = sum(segment.length for segment in array.segments)
    return LeafSpec(kind=LeafKind.NUMPY, shape=array.shape, dtype=array.dtype, stored_bytes=stored)


def read_header(path: Path) -> dict[LeafPath, ContiguousArray]:
    """The tensors of one file with their places, by name.

    Raises:
        CheckpointError: as ``declared``; or the file is longer or shorter than the header says.
    """
    found, size = declared(path), filesystem.size(path)
    stops = [segment.offset + segment.length for one in found.values() for segment in one.segments]
    needed = max(stops, default=size)
    if needed != size:
        raise _refusal(path, f"its tensors need {needed} bytes, and it has {size}")
    return found


def declared(path: Path) -> dict[LeafPath, ContiguousArray]:
    """The tensors of which the header of a file says where they stand, or stood.

    Raises:
        CheckpointError: the header is longer than the file or the format allows, is not JSON, names an unknown dtype,
            or its offsets overlap, leave holes, or do not fit the shapes.
    """
    try:
        size = filesystem.size(path)
        with filesystem.reader(path) as file:
            start = file.read(8)
            length = int.from_bytes(start, "little")
            if len(start) < 8 or length > min(size - 8, LARGEST_HEADER_BYTES):
                refuse_pointer(path)
                raise _refusal(path, f"a header of {length} bytes is declared in {size} bytes")
            header = file.read(length)
    except OSError as error:
        raise unreadable(path, error) from None
    entries = _entries(path, header)
    found: dict[LeafPath, ContiguousArray] = {}
    at = 0
    for name, entry in sorted(entries.items(), key=lambda e: e[1].data_offsets):
        begin, end = entry.data_offsets
        if entry.dtype not in _DTYPES:
            raise CheckpointError(
                f"'{name}' in '{path}' has the dtype '{entry.dtype}'",
                why="it has several values to a byte, is newer than this program, or the file is damaged",
                fix="write it again with another dtype: `surgery` reads " + ", ".join(_DTYPES),
            )
        dtype = _DTYPES[entry.dtype]
        if not can_be_shape(entry.shape, item_bytes(dtype)):
            raise _refusal(path, f"'{name}' has the shape {list(entry.shape)}")
        needed = math.prod(entry.shape) * item_bytes(dtype)
        if begin != at or end - begin != needed:
            raise _refusal(
                path,
                f"'{name}' is {dtype}{list(entry.shape)}, {needed} bytes, and should begin at {at}; "
                f"its offsets are {begin} to {end}",
            )
        segment = Segment(8 + length + begin, needed)
        found[_path_of(name)] = ContiguousArray(path, entry.shape, dtype, segments=(segment,))
        at = end
    return {_path_of(name): found[_path_of(name)] for name in entries}


def _entries(path: Path, header: bytes) -> dict[str, _Entry]:
    check_values(header, f"the header of '{path}'")
    try:
        fields = decode_json(header, type=dict[str, msgspec.Raw])
        LEAVES.check(len(fields), f"'{path}'")
        if (twice := _repeated(header)) is not None:
            raise _refusal(path, f"{twice} stands twice in its header")
        said = fields.pop(METADATA, None)
        if said is not None and bytes(said) != b"null":
            decode_json(said, type=dict[str, str])
        return {name: decode_json(raw, type=_Entry) for name, raw in fields.items()}
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise _refusal(path, f"its header does not read: {error}") from None


def _repeated(header: bytes) -> str | None:
    """A name, or a field of a tensor, of which the header says two things, in words."""
    import json

    names = json.loads(header, object_pairs_hook=tuple)  # as pairs, so that none is lost
    if len(dict(names)) != len(names):
        return "a name"
    for name, entry in names:
        if name == METADATA or not isinstance(entry, tuple):
            continue
        keys = [key for key, _ in entry if key in _Entry.__struct_fields__]
        if len(set(keys)) != len(keys):
            return f"a field of '{name}'"
    return None


def _path_of(name: str) -> LeafPath:
    return LeafPath((name,))


def _refusal(path: Path, why: str) -> CheckpointError:
    return CheckpointError(
        f"'{path}' is not a whole safetensors file",
        why=why,
        fix="it was cut short or damaged; copy it again from where it was whole",
    )
