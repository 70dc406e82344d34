"""What is left of files that break off: msgpack, safetensors and npz, as far as what they say of leaves is there."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from surgery_cli.errors import CheckpointError
from surgery_cli.store import filesystem
from surgery_cli.store.files.msgpack_break import scan_before_break
from surgery_cli.store.files.msgpack_tree import MsgpackFile
from surgery_cli.store.files.npy_arrays import array_in
from surgery_cli.store.files.safetensors import declared, spec_of
from surgery_cli.store.locate.file_formats import ZIP_MARK, FileFormat
from surgery_cli.store.orbax.arrays import Window
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec


class FileLeaf(NamedTuple):
    """A leaf that a file declares: its values if all of their bytes are there, else the ``why``."""

    spec: LeafSpec | None
    read: Callable[[Window | None], Any] | None
    why: str = ""
    has_checksum: bool = False


class FileLeaves(NamedTuple):
    """The leaves of a file that may break off; ``fault`` is what is wrong with it, '' if nothing is."""

    leaves: dict[LeafPath, FileLeaf]
    fault: str
    are_all_named: bool
    """True if no leaf can be missing here."""
    source: MsgpackFile | None = None
    """Of msgpack, the leaves that are there."""


def file_leaves(path: Path, form: FileFormat) -> FileLeaves:
    """What a file declares, and which of it is there.

    Raises:
        CheckpointError: not even its begin can be read.
    """
    match form:
        case FileFormat.SAFETENSORS:
            return _of_safetensors(path)
        case FileFormat.FLAX:
            return _of_msgpack(path)
        case _:
            return _of_npz(path)


def _of_safetensors(path: Path) -> FileLeaves:
    """The header says where every tensor stands."""
    arrays, size = declared(path), filesystem.size(path)
    found = {}
    for name, array in arrays.items():
        (segment,) = array.segments
        there = size - segment.offset
        why = f"{max(there, 0)} of its {segment.length} bytes are there"
        found[name] = (
            FileLeaf(spec_of(array), array.read)
            if there >= segment.length
            else FileLeaf(spec_of(array), None, why)
        )
    lost = sum(leaf.read is None for leaf in found.values())
    return FileLeaves(found, f"it breaks off after {size} bytes" if lost else "", True)


def _of_msgpack(path: Path) -> FileLeaves:
    """Leaves stand one after the other: those before the break."""
    scan, broken, why = scan_before_break(path)
    source = MsgpackFile(path, known=scan)
    found = {name: FileLeaf(spec, partial(source.read, name)) for name, spec in source.tree.items()}
    if broken:
        found[broken] = FileLeaf(None, None, why)
    return FileLeaves(found, why, not why, source)


def _read(path: Path, member: _Member, window: Window | None) -> Any:
    values = array_in(path, _unpacked(path, member), member.name)
    return values if window is None else values[window]


_LARGEST_RATIO: Final = 1032
"""A run of zeros is the best case of deflate."""


class _Member(NamedTuple):
    """An entry of an archive, as what stands before its bytes says it."""

    name: str
    method: int
    crc: int
    start: int
    stored: int
    size: int


_HEAD: Final = struct.Struct("<4s5H3I2H")
_UNKNOWN: Final = 0xFFFFFFFF
_WIDE: Final = 1
"""The field beside a name in which sizes stand that take more than 32 bits."""


def _of_npz(path: Path) -> FileLeaves:
    """Each entry says its name, its sizes and a checksum before its bytes."""
    size, found, fault = filesystem.size(path), {}, ""
    for member in _members(path, size):
        name = LeafPath((member.name.removesuffix(".npy"),))
        if member.start + member.stored > size:
            there = max(size - member.start, 0)
            fault = f"it breaks off after {size} bytes"
            found[name] = FileLeaf(None, None, f"{there} of its {member.stored} bytes are there")
            continue
        try:
            values = array_in(path, _unpacked(path, member), member.name)
        except (CheckpointError, zlib.error) as error:
            why = error.problems[0].why if isinstance(error, CheckpointError) else str(error)
            found[name] = FileLeaf(None, None, why)
            continue

        spec = LeafSpec(kind=LeafKind.NUMPY, shape=values.shape, dtype=values.dtype.name)
        found[name] = FileLeaf(spec, partial(_read, path, member), has_checksum=True)
    if not fault and filesystem.read(path, max(size - 22, 0), 4) != b"PK\x05\x06":
        fault = "what says where its entries stand is not there"
    return FileLeaves(found, fault, not fault)


def _members(path: Path, file_size: int) -> Iterator[_Member]:
    """The entries from the first on, as long as each says where the next one stands."""
    at = 0
    while at + _HEAD.size <= file_size:
        head = filesystem.read(path, at, _HEAD.size)
        mark, _, flags, method, _, _, crc, stored, size, name_bytes, more_bytes = _HEAD.unpack(head)
        if mark != ZIP_MARK or flags & 0x9:  # encrypted, or sizes come after the bytes
            return
        more = filesystem.read(path, at + _HEAD.size, name_bytes + more_bytes)
        name, extra = more[:name_bytes], more[name_bytes:]
        while len(extra) >= 4:
            code, length = struct.unpack_from("<HH", extra)
            if code == _WIDE and _UNKNOWN in (stored, size) and length >= 16 and len(extra) >= 20:
                size, stored = struct.unpack_from("<QQ", extra, 4)
            extra = extra[4 + length :]
        start = at + _HEAD.size + name_bytes + more_bytes
        if len(more) == name_bytes + more_bytes and name.endswith(b".npy"):
            yield _Member(name.decode(errors="replace"), method, crc, start, stored, size)
        at = start + stored


def _unpacked(path: Path, member: _Member) -> io.BytesIO:
    """The bytes of an entry, which have the checksum that it says.

    Raises:
        CheckpointError: they have not.
    """
    raw = filesystem.read(path, member.start, member.stored)
    if member.method == 8:
        unpacker = zlib.decompressobj(-15)
        most = len(raw) * _LARGEST_RATIO
        raw = unpacker.decompress(raw, min(member.size, most) + 1)
    if len(raw) != member.size or zlib.crc32(raw) != member.crc:
        raise CheckpointError(
            f"'{member.name}' in '{path}' is damaged", why="its bytes do not have their checksum"
        )
    return io.BytesIO(raw)
