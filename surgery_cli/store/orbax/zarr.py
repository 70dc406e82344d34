"""Array metadata documents of zarr 2 (``.zarray``) and zarr 3 (``zarr.json``), as Orbax writes them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec

from surgery_cli.errors import CheckpointError
from surgery_cli.inputs.json_decoding import decode_json
from surgery_cli.tree.dtypes import can_be_shape, item_bytes

DOCUMENT_NAMES: Final = {2: ".zarray", 3: "zarr.json"}

DRIVERS: Final = {2: "zarr", 3: "zarr3"}
"""What TensorStore calls the versions of zarr."""

ZARR2_DTYPES: Final = {
    "b1": "bool",
    "i1": "int8",
    "i2": "int16",
    "i4": "int32",
    "i8": "int64",
    "u1": "uint8",
    "u2": "uint16",
    "u4": "uint32",
    "u8": "uint64",
    "f2": "float16",
    "f4": "float32",
    "f8": "float64",
    "c8": "complex64",
    "c16": "complex128",
}

_MOST_AXES: Final = 32


class ArrayDocument(msgspec.Struct, frozen=True, dict=True):
    """A parsed array document; ``chunk_shape`` is what can be decoded alone, ``write_shape`` what is stored whole."""

    zarr: int
    shape: tuple[int, ...]
    dtype: str
    chunk_shape: tuple[int, ...]
    write_shape: tuple[int, ...]
    raw: bytes
    has_fill_value: bool = True
    """True if the document says which value stands where no chunk is stored."""
    key_start: str = ""
    """What the keys of chunks begin with."""
    key_separator: str = "."
    """What stands between the numbers in the key of a chunk."""

    @property
    def fields(self) -> dict[str, Any]:
        """The document as stored."""
        return decode_json(self.raw, type=dict[str, Any])

    @cached_property
    def grid(self) -> tuple[int, ...]:
        """How many stored units there are along each axis if all of them are stored."""
        steps = zip(self.shape, self.write_shape, strict=True)
        return tuple(-(-size // max(step, 1)) for size, step in steps)

    @property
    def chunk_count(self) -> int:
        return math.prod(self.grid)

    @property
    def _start(self) -> str:
        """What stands before the numbers in the key of a chunk."""
        return self.key_start and self.key_start + self.key_separator

    @cached_property
    def chunk_keys(self) -> frozenset[str]:
        """The keys of all chunks, below the array's name; ask only if ``chunk_count`` is no mere claim."""
        if not self.grid:
            return frozenset({self.key_of(())})
        indices = itertools.product(*(map(str, range(count)) for count in self.grid))
        return frozenset(self._start + self.key_separator.join(index) for index in indices)

    def key_of(self, index: tuple[int, ...]) -> str:
        """The key of a chunk, below the array's name, by its place in the grid."""
        if not index:
            return self.key_start or "0"
        return self._start + self.key_separator.join(map(str, index))

    def keys_in(self, window: tuple[slice, ...]) -> Iterator[str]:
        """The keys of the chunks that a window meets."""
        steps = zip(window, self.write_shape, strict=True)
        axes = [range(one.start // max(n, 1), -(-one.stop // max(n, 1))) for one, n in steps]
        return map(self.key_of, itertools.product(*axes))

    def window(self, index: tuple[int, ...]) -> tuple[slice, ...]:
        """The elements that stand in a chunk, by its place in the grid."""
        every = zip(index, self.write_shape, self.shape, strict=True)
        return tuple([slice(n * step, min(n * step + step, size)) for n, step, size in every])

    def index_of(self, window: tuple[slice, ...]) -> tuple[int, ...] | None:
        """The place in the grid of the chunk that holds these elements and no others; None if they are no chunk's."""
        steps = zip(window, self.write_shape, strict=True)
        index = tuple([part.start // max(step, 1) for part, step in steps])
        return index if window == self.window(index) else None

    @cached_property
    def encoding(self) -> list[Any]:
        """All that decides how elements become bytes, but for the shapes of chunks."""
        fields = self.fields
        if self.zarr == 2:
            return [2, *(fields.get(key) for key in ("dtype", "compressor", "filters", "order"))]
        for codec in fields["codecs"]:
            if codec["name"] == "sharding_indexed":
                del codec["configuration"]["chunk_shape"]
        # what a shard lacks is the fill value
        return [3, fields["data_type"], fields.get("fill_value"), fields["codecs"]]

    @cached_property
    def is_plain(self) -> bool:
        """True if the elements of a chunk lie in C order."""
        if self.zarr == 2:
            return bool(self.fields.get("order", "C") == "C")
        return b'"transpose"' not in self.raw

    @cached_property
    def is_big_endian(self) -> bool:
        """True if elements are stored with their highest byte first, as Orbax never does."""
        if b'">' not in self.raw and b'"big"' not in self.raw:
            return False  # at a glance: there may be 100,000
        if self.zarr == 2:
            return str(self.fields["dtype"]).startswith(">")
        return any(one.get("endian") == "big" for one in _settings(self.fields["codecs"]))

    @cached_property
    def is_transposed(self) -> bool:
        """True if the elements of a chunk lie in another order than C, as Orbax never writes them."""
        if b'"F"' not in self.raw and b'"transpose"' not in self.raw:
            return False  # at a glance, as above
        if sum(size > 1 for size in self.write_shape) < 2:
            return False  # every order is the same
        if self.zarr == 2:
            return not self.is_plain
        orders = [one.get("order", []) for one in _settings(self.fields["codecs"])]
        return any(order != "C" and order != sorted(order) for order in orders)

    def is_chunk(self, key: str) -> bool:
        """True if a key, below the array's name, is that of a chunk; what else stands there is somebody's own."""
        if not self.grid:
            return key == (self.key_start or "0")
        numbers = key.removeprefix(self._start).split(self.key_separator)
        return (
            key.startswith(self._start)
            and len(numbers) == len(self.grid)
            and all(
                number.isdecimal() and str(int(number)) == number and int(number) < count
                for number, count in zip(numbers, self.grid, strict=True)
            )
        )

    def is_like_chunk(self, key: str) -> bool:
        """True if a key is that of a chunk, of this array or of one with another shape of as many axes."""
        numbers = key.removeprefix(self._start).split(self.key_separator)
        return (
            bool(self.shape)
            and key.startswith(self._start)
            and len(numbers) == len(self.shape)
            and all(number.isdecimal() for number in numbers)
        )

    def index_of_key(self, key: str) -> tuple[int, ...]:
        """The place in the grid of the chunk with that key; see ``is_chunk``."""
        if not self.grid:
            return ()
        return tuple(map(int, key.removeprefix(self._start).split(self.key_separator)))

    def can_be_of(self, write_shape: Any) -> bool:
        """True if an array that Orbax wrote in blocks of that shape can be described so.

        A block is what a device had: all are alike, and each is cut into whole chunks. Or it is as it is stored: an
        array that was sliced has less in its last blocks.

        Source: ``arrays/subchunking.py`` of orbax-checkpoint.
        """
        if not isinstance(write_shape, list) or len(write_shape) != len(self.shape):
            return False
        if not all(type(n) is int and n >= 0 for n in write_shape):
            return False
        if write_shape == list(self.write_shape):
            return True
        axes = zip(self.shape, write_shape, self.chunk_shape, strict=True)
        return all(
            size % max(block, 1) == 0 and max(block, 1) % max(chunk, 1) == 0
            for size, block, chunk in axes
        )

    def lacks(self, keys: Collection[str]) -> str | None:
        """What is missing of the chunks if these keys are stored, in words; None if all are there.

        Keys beside the chunks' own (the document, files of a person) do not stand in for chunks.
        """
        if len(keys) >= self.chunk_count:
            missing = self.chunk_keys.difference(keys)
            if not missing:
                return None
            return f"{len(missing)} of {self.chunk_count} chunks are not stored (first: '{min(missing)}')"
        return (
            f"at least {self.chunk_count - len(keys)} of {self.chunk_count} chunks are not stored"
        )


def _settings(codecs: list[Any]) -> Iterator[dict[str, Any]]:
    """Those of each codec of elements, within shards, too; what a shard says of its index is no matter of elements."""
    for codec in codecs:
        one = codec.get("configuration") or {} if isinstance(codec, dict) else {}
        yield one
        yield from _settings(one.get("codecs") or [])


def _key_encoding(fields: dict[str, Any]) -> tuple[str, str]:
    """What the keys of chunks begin with, and what stands between the numbers."""
    if fields["zarr_format"] == 2:
        return "", fields.get("dimension_separator") or "."
    encoding = fields.get("chunk_key_encoding") or {"name": "default"}
    is_default = encoding["name"] == "default"
    configuration = encoding.get("configuration") or {}
    return ("c" if is_default else ""), configuration.get("separator", "/" if is_default else ".")


@lru_cache(maxsize=4096)
def parse(raw: bytes) -> ArrayDocument:
    """Parse an array document.

    Raises:
        CheckpointError: it is not one, or names a dtype or a grid that this program does not know.
    """
    try:
        fields = decode_json(raw)
        version = fields["zarr_format"]
        shape = tuple(fields["shape"])
        if version == 2:
            code = fields["dtype"]
            chunks = write = tuple(fields["chunks"])
            dtype = ZARR2_DTYPES.get(code.lstrip("<>|"), code)
        elif version == 3:
            dtype = fields["data_type"]
            chunks = write = tuple(fields["chunk_grid"]["configuration"]["chunk_shape"])
            for codec in fields["codecs"]:
                if codec["name"] == "sharding_indexed":
                    chunks = tuple(codec["configuration"]["chunk_shape"])
        else:
            raise KeyError(f"zarr_format {version}")
        integers = all(type(n) is int and n >= 0 for n in (*shape, *chunks, *write))
        if (
            not integers
            or not len(shape) == len(chunks) == len(write)
            or not isinstance(dtype, str)
        ):
            raise ValueError("shapes and chunks do not agree")
        if len(shape) > _MOST_AXES:
            raise ValueError(f"it has {len(shape)} axes, and TensorStore takes {_MOST_AXES}")
        if not can_be_shape(shape, item_bytes(dtype)):  # KeyError: a dtype that is not known
            raise ValueError("it has more elements than can be counted in 64 bits")
        key_start, key_separator = _key_encoding(fields)
        if key_separator not in ("/", "."):
            raise ValueError(f"the keys of chunks have the separator {key_separator!r}")
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(
            "array metadata cannot be understood",
            why=f"{error}: {raw[:80]!r}",
            fix="the checkpoint is damaged, or newer than this program",
        ) from None
    return ArrayDocument(
        version,
        shape,
        dtype,
        chunks,
        write,
        raw,
        has_fill_value=fields.get("fill_value") is not None,
        key_start=key_start,
        key_separator=key_separator,
    )


def parse_at(raw: bytes, directory: Path, name: str) -> ArrayDocument:
    """As ``parse``, of the document of the array ``name``."""
    try:
        return parse(raw)
    except CheckpointError as error:
        problem = msgspec.structs.replace(
            error.problems[0],
            what=f"what describes the array '{name}' in '{directory}' cannot be understood",
        )
        raise error.retold([problem]) from None
