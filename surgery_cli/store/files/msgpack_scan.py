"""Walks through msgpack bytes in a file without keeping values: every leaf with its place and what it is."""

from __future__ import annotations

import math
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import msgspec

from surgery_cli.inputs.limits import LEAVES, NESTING
from surgery_cli.store import filesystem
from surgery_cli.store.files.contiguous import ContiguousArray, Segment
from surgery_cli.store.files.msgpack_cursor import Cursor, Oddity, Token
from surgery_cli.tree.dtypes import can_be_shape, is_known, item_bytes
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec

NDARRAY: Final = 1
COMPLEX: Final = 2
NUMPY_SCALAR: Final = 3
TUPLE: Final = 4
"""Extension types of flax.serialization (1 to 3) and orbax.checkpoint.msgpack_utils (1 to 4)."""

BINARY: Final = -1
"""Stands where an extension type would, for raw bytes."""

ARRAY_SPEC: Final = -2
"""Stands there for a TensorStore spec: a dict that says where an array stands."""

CHUNKED: Final = "__msgpack_chunked_array__"


class PackedLeaf(msgspec.Struct, frozen=True):
    """A leaf in a msgpack file: what it is, its bytes as they stand, and its values if it is an array."""

    spec: LeafSpec
    start: int
    stop: int
    code: int | None = None
    """The extension type of arrays and complex numbers; ``BINARY`` and ``ARRAY_SPEC`` for what has none."""
    array: ContiguousArray | None = None


class Scan(NamedTuple):
    """The leaves of a file in stored order; which of its sequences are tuples; which of its dict keys are numbers."""

    leaves: dict[LeafPath, PackedLeaf]
    tuples: set[LeafPath]
    integer_keys: set[LeafPath]
    oddities: list[Oddity]


def scan_file(path: Path) -> Scan:
    """All leaves of a Flax msgpack file or of Orbax's ``checkpoint``.

    Raises:
        CheckpointError: it is cut short, is not msgpack, or declares more than it holds.
    """
    with filesystem.reader(path) as file:
        return Scanner(path, file).scan()


class Scanner(Cursor):
    """Walks from value to value."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        super().__init__(path, file)
        self.found = Scan({}, set(), set(), [])
        self.within = LeafPath()
        """What is being read."""

    def scan(self) -> Scan:
        head = self.peek(1)
        if not head or head[0] not in (*range(0x80, 0xA0), 0xDC, 0xDD, 0xDE, 0xDF):
            raise self.refusal("it does not begin with a dict or a list")
        self._value(LeafPath(), 0)
        if self.at != self.size:
            raise self.refusal(f"{self.size - self.at} bytes follow the tree")
        return self.found

    def _value(self, path: LeafPath, depth: int) -> None:
        NESTING.check(depth, f"a leaf in '{self.path}'")
        start, self.within = self.at, path
        token = self.token()
        self._take_odd_heads(path)
        if token.kind == "map":
            self._map(path, token.size, start, depth)
        elif token.kind == "list":
            self._list(path, token.size, start, depth, "List")
        elif token.kind == "ext":
            self._extension(path, token, start, depth)
        else:
            self._plain(path, token, start)
        self._take_odd_heads(path)

    def _take_odd_heads(self, path: LeafPath) -> None:
        self.found.oddities.extend(Oddity(at, path, why) for at, why in self.odd_heads)
        self.odd_heads.clear()

    def _leaf(
        self,
        path: LeafPath,
        spec: LeafSpec,
        start: int,
        code: int | None = None,
        array: ContiguousArray | None = None,
    ) -> None:
        LEAVES.check(len(self.found.leaves) + 1, f"'{self.path}'")
        self.found.leaves[path] = PackedLeaf(spec, start, self.at, code, array)

    def _plain(self, path: LeafPath, token: Token, start: int) -> None:
        is_large = token.kind == "uint64" and self.peek(1) >= b"\x80"
        self.skip(token.size if token.kind in ("str", "bin") else token.code)
        match token.kind:
            case "uint64":  # msgpack packs every number above 2³² so; few of them need it
                spec = LeafSpec(kind=LeafKind.SCALAR, dtype="uint64" if is_large else "int64")
            case "nil":
                spec = LeafSpec(kind=LeafKind.EMPTY, empty="None")
            case "str":
                spec = LeafSpec(kind=LeafKind.STRING, dtype="str")
            case "bin":
                # Bytes have no kind of their own in a tree of arrays; Orbax never writes them, Flax may.
                segment = Segment(self.at - token.size, token.size)
                array = ContiguousArray(self.path, (token.size,), "uint8", segments=(segment,))
                spec = LeafSpec(kind=LeafKind.NUMPY, shape=(token.size,), dtype="uint8")
                self._leaf(path, spec, start, BINARY, array)
                if path and is_known(
                    str(path[-1])
                ):  # the end of an array whose head was taken for values
                    why = f"plain bytes are called '{path[-1]}', as the dtype in an array is"
                    self.found.oddities.append(Oddity(start, path, why))
                return
            case _:
                spec = LeafSpec(kind=LeafKind.SCALAR, dtype=_SCALARS[token.kind])
        self._leaf(path, spec, start)

    def _map(self, path: LeafPath, count: int, start: int, depth: int) -> None:
        if count * 2 > self.size - self.at:
            raise self.refusal(
                f"{count} entries are declared at {start}, more than its bytes can hold"
            )
        if count == 0:
            if path:
                self._leaf(path, LeafSpec(kind=LeafKind.EMPTY, empty="Dict"), start)
            return
        seen: set[str] = set()
        for _ in range(count):
            before = self.at
            key, is_integer = self._key()
            if key in seen:
                raise self.refusal(f"the key '{key}' stands twice in '{path}'")
            seen.add(key)
            child = LeafPath((*path, key))
            if is_integer:
                self.found.integer_keys.add(child)
                odd = Oddity(
                    before, child, f"the key {key} is a number, and `to_bytes` writes text alone"
                )
                self.found.oddities.append(odd)
            self._value(child, depth + 1)
        if CHUNKED in seen and path:
            self._join_chunks(path, start)
        elif seen >= {"driver", "kvstore"} and path:
            self._join_spec(path, start)

    def _key(self) -> tuple[str, bool]:
        """A dict key; numbers are told apart by the second value."""
        start = self.at
        token = self.token()
        if token.kind == "str":
            try:
                return self.take(token.size).decode(), False
            except UnicodeDecodeError:
                raise self.refusal(f"the key at {start} is not text") from None
        if token.kind in ("int", "uint64"):
            self.at = start
            return str(self.integer()), True
        raise self.refusal(f"the key at {start} is neither text nor a number")

    def _list(self, path: LeafPath, count: int, start: int, depth: int, empty: str) -> None:
        if count > self.size - self.at:
            raise self.refusal(
                f"{count} entries are declared at {start}, more than its bytes can hold"
            )
        if count == 0 and path:
            self._leaf(path, LeafSpec(kind=LeafKind.EMPTY, empty=empty), start)
        for index in range(count):
            self._value(LeafPath((*path, index)), depth + 1)

    def _extension(self, path: LeafPath, token: Token, start: int, depth: int) -> None:
        stop = self.at + token.size
        if stop > self.size:
            raise self.refusal(
                f"{token.size} bytes are declared at {start}, and {self.size - self.at} are left"
            )
        if token.code in (NDARRAY, NUMPY_SCALAR):
            self._array(path, token, start)
        elif token.code == COMPLEX:
            inner = self.token()
            if inner != Token("list", 2):
                raise self.refusal(f"the complex number at {start} has no two parts")
            for _ in range(2):
                self.skip(self.token().code)
            self._leaf(path, LeafSpec(kind=LeafKind.SCALAR, dtype="complex128"), start, COMPLEX)
        elif token.code == TUPLE:
            inner = self.token()
            if inner.kind != "list":
                raise self.refusal(f"the tuple at {start} is not a sequence")
            self.found.tuples.add(path)
            self._list(path, inner.size, start, depth, "Tuple")
            if inner.size == 0:  # the leaf is the whole extension
                self._leaf(path, LeafSpec(kind=LeafKind.EMPTY, empty="Tuple"), start, TUPLE)
        else:
            raise self.refusal(
                f"extension type {token.code} at {start} is none of Flax's or Orbax's"
            )
        if self.at != stop:
            raise self.refusal(f"the object at {start} is not as long as it says")

    def _array(self, path: LeafPath, token: Token, start: int) -> None:
        """(shape, dtype name, bytes), as flax.serialization packs an array."""
        if self.token() != Token("list", 3):
            raise self.refusal(f"the array at {start} is not made of shape, dtype and bytes")
        axes = self.token()
        if axes.kind != "list" or axes.size > 64:
            raise self.refusal(f"the array at {start} has no shape")
        shape = tuple(self.length() for _ in range(axes.size))
        name = self.token()
        if name.kind not in ("str", "bin") or name.size > 64:
            raise self.refusal(f"the array at {start} has no dtype")
        dtype = self.take(name.size).decode("ascii", "replace")
        if not is_known(dtype):
            raise self.refusal(
                f"the array '{path}' has the dtype '{dtype}', which is not a number's"
            )
        if not can_be_shape(shape, item_bytes(dtype)):
            raise self.refusal(f"the array at {start} has no shape that can be: {list(shape)}")
        values = self.token()
        needed = math.prod(shape) * item_bytes(dtype)
        if values.kind not in ("str", "bin") or values.size != needed:
            raise self.refusal(
                f"'{path}' is {dtype}{list(shape)}, {needed} bytes, but stores {values.size}"
            )
        segment = Segment(self.at, values.size)
        self.skip(values.size)
        array = ContiguousArray(self.path, shape, dtype, segments=(segment,))
        kind = LeafKind.ARRAY if token.code == NDARRAY else LeafKind.NUMPY
        spec = LeafSpec(kind=kind, shape=shape, dtype=dtype, stored_bytes=values.size)
        self._leaf(path, spec, start, token.code, array)

    def _join_chunks(self, path: LeafPath, start: int) -> None:
        """Replace the leaves of a chunked array by one. Source: ``flax.serialization._chunk``."""
        inside = {p: leaf for p, leaf in self.found.leaves.items() if p.is_below(path)}
        for part in inside:
            del self.found.leaves[part]
        sizes = _numbered(inside, LeafPath((*path, "shape")))
        chunks = [leaf.array for leaf in _numbered(inside, LeafPath((*path, "chunks")))]
        arrays = [array for array in chunks if array is not None]
        shape = tuple(self._small_length(leaf) for leaf in sizes)
        dtypes = {array.dtype for array in arrays}
        count = sum(math.prod(array.shape) for array in arrays)
        if len(arrays) != len(chunks) or len(dtypes) != 1 or count != math.prod(shape):
            raise self.refusal(
                f"the chunks of '{path}' hold {count} values, its shape {list(shape)} asks for {math.prod(shape)}"
            )
        segments = tuple(segment for array in arrays for segment in array.segments)
        whole = ContiguousArray(self.path, shape, dtypes.pop(), segments=segments)
        stored = sum(segment.length for segment in segments)
        spec = LeafSpec(kind=LeafKind.ARRAY, shape=shape, dtype=whole.dtype, stored_bytes=stored)
        self._leaf(path, spec, start, NDARRAY, whole)

    def _join_spec(self, path: LeafPath, start: int) -> None:
        """Replace what stands in a TensorStore spec by one leaf: the array that it refers to."""
        drivers = [LeafPath((*path, *names)) for names in (("driver",), ("kvstore", "driver"))]
        leaves = [self.found.leaves.get(driver) for driver in drivers]
        if not all(leaf is not None and leaf.spec.kind is LeafKind.STRING for leaf in leaves):
            return  # leaves of anybody may be called so
        while next(reversed(self.found.leaves), LeafPath()).is_below(path):
            self.found.leaves.popitem()
        self._leaf(path, LeafSpec(kind=LeafKind.STRING, dtype="str"), start, ARRAY_SPEC)

    def _small_length(self, leaf: PackedLeaf) -> int:
        after, self.at = self.at, leaf.start
        size = self.length()
        self.at = after
        return size


def _numbered(leaves: dict[LeafPath, PackedLeaf], node: LeafPath) -> list[PackedLeaf]:
    """The leaves ``0``, ``1``, … below a node."""
    found: list[PackedLeaf] = []
    while (leaf := leaves.get(LeafPath((*node, str(len(found)))))) is not None:
        found.append(leaf)
    return found


_SCALARS: Final = {"int": "int64", "float": "float64", "bool": "bool"}
