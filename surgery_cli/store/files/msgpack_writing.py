"""Writes msgpack files as Flax and Orbax do, leaf by leaf.

The bytes of untouched leaves are copied, so that a rewrite without changes is identical byte by byte. Source:
``flax.serialization``, ``orbax.checkpoint.msgpack_utils``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import msgpack
import msgspec

from surgery_cli.errors import CheckpointError, WriteError
from surgery_cli.store import filesystem
from surgery_cli.store.files.msgpack_scan import (
    BINARY,
    CHUNKED,
    COMPLEX,
    NDARRAY,
    NUMPY_SCALAR,
    TUPLE,
    PackedLeaf,
    Scan,
)
from surgery_cli.store.files.msgpack_tree import PackedSource
from surgery_cli.store.filesystem.write_failures import write_failed
from surgery_cli.tree.paths import Key, LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec

LARGEST_ARRAY_BYTES: Final = 1 << 30
"""``flax.serialization.MAX_CHUNK_SIZE``: above it an array is written as a dict of chunks."""

_COPY_BYTES: Final = 16 << 20


class Stored(msgspec.Struct, frozen=True):
    """Says to ``write_msgpack``: the leaf of the source at this path, byte by byte."""

    path: LeafPath


class Continued(msgspec.Struct, frozen=True):
    """Says to ``write_msgpack``: a value in the place of the leaf that stood at this path of the source."""

    path: LeafPath
    value: Any


Value = Any
"""An array, a NumPy scalar, a Python number, text, bytes, None, ``{}``, ``[]`` or ``()``; ``Stored``, ``Continued``; or
a function without arguments that gives one of these when its turn comes."""


def write_msgpack(
    source: PackedSource, destination: Path, leaves: Mapping[LeafPath, Value | Callable[[], Value]]
) -> int:
    """Write a new file with these leaves, in their order; returns its size in bytes.

    One leaf is held at a time. Containers come from the paths: text keys make dicts, numbers make sequences, and a
    sequence that was a tuple, or a key that was a number, in ``source`` is one again. Not fsynced.

    Raises:
        WriteError: a sequence has holes, a leaf stands where others have a container, or writing failed.
    """
    try:
        with filesystem.create(destination) as file:
            file.write(source.envelope)
            for part in _Shape(source.scan, leaves).parts():
                _write_part(file, source, part)
            return file.tell()
    except OSError as error:
        raise write_failed(destination.name, error) from error


def in_kind(value: Any, spec: LeafSpec, code: int | None = None) -> Any:
    """``value`` as the kind of leaf that ``spec`` describes, ready to be written.

    A computed array becomes a Python number for kind SCALAR. ``code`` is that of the leaf in the source, if it has one
    there: what was a NumPy scalar, or raw bytes, becomes one again.
    """
    import numpy as np

    if spec.kind is LeafKind.SCALAR:
        return value.item() if hasattr(value, "item") else value
    if spec.kind is LeafKind.NUMPY and code == NUMPY_SCALAR and not spec.shape:
        return np.asarray(value)[()]
    if spec.kind is LeafKind.NUMPY and code == BINARY and spec.dtype == "uint8":
        return np.asarray(value).tobytes()
    return np.asarray(value) if spec.kind is LeafKind.ARRAY else value  # no axes: no NumPy scalar


class _Head(msgspec.Struct, frozen=True):
    """Bytes of structure: the head of a container, or a key."""

    data: bytes


class _Tuple(msgspec.Struct, frozen=True):
    """A tuple: its parts are packed into one extension, whose length stands before them."""

    parts: list[Any]


class _Shape:
    """Containers of the output, and in which order their bytes come."""

    def __init__(self, scan: Scan, leaves: Mapping[LeafPath, Value]) -> None:
        self.scan = scan
        self.leaves = leaves
        self.children: dict[LeafPath, dict[Key, LeafPath]] = {LeafPath(): {}}
        self.origins: dict[LeafPath, LeafPath] = {}
        """Nodes and leaves of the output with the source's nodes that they come from, where that shows."""
        for path, value in leaves.items():
            self._place(path)
            self._trace(path, value.path if isinstance(value, Stored | Continued) else path)

    def _place(self, path: LeafPath) -> None:
        while path:
            parent = path.parent
            siblings = self.children.setdefault(parent, {})
            if path[-1] in siblings:
                break
            siblings[path[-1]] = path
            path = parent

    def _trace(self, target: LeafPath, origin: LeafPath) -> None:
        """The nodes above a leaf come from those above its origin as long as the keys agree."""
        while target:
            self.origins.setdefault(target, origin)
            if not origin or target[-1] != origin[-1]:
                return
            target, origin = target.parent, origin.parent

    def parts(self) -> Iterator[Any]:
        """Heads, keys and leaves of the whole file in order."""
        yield from self._node(LeafPath())

    def _node(self, path: LeafPath) -> Iterator[Any]:
        if path in self.leaves:
            if path in self.children:
                raise WriteError(
                    f"'{path}' is a leaf, and other leaves stand below it",
                    why="a msgpack file holds one or the other",
                )
            value = self.leaves[path]
            yield value.value if isinstance(value, Continued) else value
            return
        children = self.children[path]
        if children and all(isinstance(key, int) for key in children):
            yield from self._sequence(path, children)
            return
        yield _Head(_packer().pack_map_header(len(children)))
        for key, child in children.items():
            was_integer = self.origins.get(child, child) in self.scan.integer_keys
            yield _Head(_packer().pack(int(key) if was_integer else str(key)))
            yield from self._node(child)

    def _sequence(self, path: LeafPath, children: dict[Key, LeafPath]) -> Iterator[Any]:
        if sorted(cast("list[int]", list(children))) != list(range(len(children))):
            raise WriteError(
                f"the sequence '{path}' has holes",
                why=f"its indices are {', '.join(map(str, children))}",
            )
        body = [_Head(_packer().pack_array_header(len(children)))]
        inner = (p for i in range(len(children)) for p in self._node(children[i]))
        if self.origins.get(path, path) in self.scan.tuples:
            yield _Tuple([*body, *inner])
        else:
            yield from body
            yield from inner


def _packer() -> Any:
    return msgpack.Packer(use_bin_type=True, strict_types=True)


def packed(value: Any) -> bytes:
    """The bytes of a plain value."""
    found: bytes = _packer().pack(value)
    return found


def map_head(count: int) -> bytes:
    """What stands before the keys and values of a dict."""
    found: bytes = _packer().pack_map_header(count)
    return found


def _write_part(file: BinaryIO, source: PackedSource, part: Any) -> None:
    if isinstance(part, _Head):
        file.write(part.data)
    elif isinstance(part, _Tuple):
        import io

        body = io.BytesIO()
        for inner in part.parts:
            _write_part(body, source, inner)
        file.write(_extension(TUPLE, body.getvalue()))
    elif isinstance(part, Stored):
        _copy(file, source, source.scan.leaves[part.path])
    else:
        _write_value(file, part() if callable(part) else part)


def _copy(file: BinaryIO, source: PackedSource, leaf: PackedLeaf) -> None:
    """Copy the bytes of a leaf as they stand."""
    with filesystem.reader(source.path) as stored:
        stored.seek(leaf.start)
        left = leaf.stop - leaf.start
        while left:
            block = stored.read(min(left, _COPY_BYTES))
            if not block:
                raise CheckpointError(
                    f"'{source.path}' has become shorter while it was copied",
                    fix="wait until whatever writes it is done, then run the command again",
                )
            file.write(block)
            left -= len(block)


def _write_value(file: BinaryIO, value: Any) -> None:
    """Pack one value as ``flax.serialization.msgpack_serialize`` does."""
    import numpy as np

    if isinstance(value, np.ndarray) and value.nbytes > LARGEST_ARRAY_BYTES:
        _write_chunked(file, value)
    elif isinstance(value, np.ndarray):
        _write_array(file, value, NDARRAY)
    elif isinstance(value, np.generic):
        _write_array(file, np.asarray(value), NUMPY_SCALAR)
    elif isinstance(value, complex):
        file.write(_extension(COMPLEX, packed([value.real, value.imag])))
    elif isinstance(value, tuple):
        file.write(_extension(TUPLE, packed(list(value))))
    else:
        file.write(packed(value))


def array_head(shape: Sequence[int], dtype: str, count: int, code: int = NDARRAY) -> bytes:
    """What stands before the ``count`` bytes of an array, which is ExtType(code, (shape, dtype name, bytes))."""
    head = b"\x93" + packed(list(shape)) + packed(dtype) + _bin_header(count)
    return _ext_header(len(head) + count, code) + head


def _write_array(file: BinaryIO, array: Any, code: int) -> None:
    """An array, its values written without another copy of them."""
    import numpy as np

    file.write(array_head(array.shape, array.dtype.name, array.nbytes, code))
    if array.nbytes:
        file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def _write_chunked(file: BinaryIO, array: Any) -> None:
    flat = array.reshape(-1)
    for head, part in chunk_heads(array.shape, array.dtype.itemsize):
        file.write(head)
        _write_array(file, flat[part], NDARRAY)


def chunk_heads(shape: Sequence[int], width: int) -> Iterator[tuple[bytes, slice]]:
    """What stands before each chunk of a large array, and which of its elements that has.

    Source: ``flax.serialization._chunk``.
    """
    size, count = math.prod(shape), max(1, LARGEST_ARRAY_BYTES // width)
    starts = range(0, size, count)
    axes = {str(axis): length for axis, length in enumerate(shape)}
    head = _packer().pack_map_header(3) + packed(CHUNKED) + packed(True)
    head += (
        packed("shape") + packed(axes) + packed("chunks") + _packer().pack_map_header(len(starts))
    )
    for index, start in enumerate(starts):
        yield head + packed(str(index)), slice(start, min(start + count, size))
        head = b""


def _extension(code: int, content: bytes) -> bytes:
    """As ``Packer.pack_ext_type``, which before msgpack 1.2 gives nothing back."""
    return _ext_header(len(content), code) + content


def _bin_header(size: int) -> bytes:
    return _sized(b"\xc4\xc5\xc6", size)


def _ext_header(size: int, code: int) -> bytes:
    if size in (1, 2, 4, 8, 16):
        return bytes([0xD4 + size.bit_length() - 1, code])
    return _sized(b"\xc7\xc8\xc9", size) + bytes([code])


def _sized(marks: bytes, size: int) -> bytes:
    """The mark of the shortest length (of 1, 2 or 4 bytes) that holds ``size``, and that length."""
    which = (size > 0xFF) + (size > 0xFFFF)
    return marks[which : which + 1] + size.to_bytes(1 << which, "big")
