"""Array metadata documents of zarr 2 (``.zarray``) and zarr 3 (``zarr.json``), as Orbax writes them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec

from surgery_cli.errors import CheckpointError
from surgery_cli.inputs.json_decoding import decode_json
from surgery_cli.tree.dtypes import is_complex, is_integer, item_bytes

DOCUMENT_NAMES: Final = {2: ".zarray", 3: "zarr.json"}

_ZARR2_DTYPES: Final = {
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
_DTYPE_CODES: Final = {name: code for code, name in _ZARR2_DTYPES.items()}


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
            return frozenset({self.key_start or "0"})
        indices = itertools.product(*(map(str, range(count)) for count in self.grid))
        return frozenset(self._start + self.key_separator.join(index) for index in indices)

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
            dtype = _ZARR2_DTYPES.get(code.lstrip("<>|"), code)
        elif version == 3:
            dtype = fields["data_type"]
            chunks = write = tuple(fields["chunk_grid"]["configuration"]["chunk_shape"])
            for codec in fields["codecs"]:
                if codec["name"] == "sharding_indexed":
                    chunks = tuple(codec["configuration"]["chunk_shape"])
        else:
            raise KeyError(f"zarr_format {version}")
        integers = all(isinstance(n, int) and n >= 0 for n in (*shape, *chunks, *write))
        if (
            not integers
            or not len(shape) == len(chunks) == len(write)
            or not isinstance(dtype, str)
        ):
            raise ValueError("shapes and chunks do not agree")
        item_bytes(dtype)  # a dtype that is not known is a KeyError
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
        raise CheckpointError(problem) from None


def revised(
    document: ArrayDocument,
    shape: tuple[int, ...],
    dtype: str,
    grid: tuple[int, ...] | None = None,
    inner_grid: tuple[int, ...] | None = None,
) -> dict[str, Any]:
    """The document for an array of another shape or dtype, in the same compressor, order and fill-value policy.

    ``grid`` is what is stored whole, and ``inner_grid`` what can be decoded alone, if it is said. Else chunks are kept
    where the rank is the same, cut to the new shape; of another rank, the array is one chunk.
    """
    fields = document.fields
    if shape == document.shape and dtype == document.dtype and grid is None:
        return fields
    same_rank = len(shape) == len(document.shape)
    write = document.write_shape  # an array of the same shape keeps its grid, whatever it is
    if shape != document.shape:
        write = _fitted(write, document.shape, shape) if same_rank else shape
        write = tuple(max(n, 1) for n in write)
    write = write if grid is None else grid
    fields["shape"] = list(shape)
    if document.zarr == 2:
        fields["chunks"] = list(write)
        fields["dtype"] = _zarr2_code(dtype)
        if fields.get("fill_value") is not None:
            fields["fill_value"] = None
        return fields
    fields["chunk_grid"]["configuration"]["chunk_shape"] = list(write)
    fields["data_type"] = dtype
    if dtype != document.dtype:
        fields["fill_value"] = _zero(dtype)
    for codec in fields["codecs"]:
        if codec["name"] == "sharding_indexed":
            inner = document.chunk_shape if same_rank else write
            inner = inner if grid is None else inner_grid or grid
            codec["configuration"]["chunk_shape"] = [
                n if n and w % n == 0 else w for n, w in zip(inner, write, strict=True)
            ]
            codec["configuration"]["codecs"] = [
                _bytes_codec(c, dtype) for c in codec["configuration"]["codecs"]
            ]
    fields["codecs"] = [_bytes_codec(codec, dtype) for codec in fields["codecs"]]
    return fields


def _fitted(chunks: tuple[int, ...], old: tuple[int, ...], new: tuple[int, ...]) -> tuple[int, ...]:
    """Chunk lengths for the new shape: an axis that was one chunk stays one chunk."""
    return tuple(n if c >= o else min(c, n) for c, o, n in zip(chunks, old, new, strict=True))


def _zarr2_code(dtype: str) -> str:
    code = _DTYPE_CODES.get(dtype)
    if code is None:
        return dtype
    return ("|" if code.endswith("1") else "<") + code


def _zero(dtype: str) -> Any:
    if dtype == "bool":
        return False
    if is_complex(dtype):
        return [0.0, 0.0]
    return 0 if is_integer(dtype) else 0.0


def _bytes_codec(codec: dict[str, Any], dtype: str) -> dict[str, Any]:
    """``bytes`` states an endianness for elements wider than a byte, and none for others."""
    if codec["name"] != "bytes":
        return codec
    if item_bytes(dtype) == 1:
        return {"name": "bytes"}
    return {"name": "bytes", "configuration": {"endian": "little"}}


def new_document(
    zarr: int, shape: tuple[int, ...], dtype: str, like: ArrayDocument | None = None
) -> dict[str, Any]:
    """A document for a new array: compressed like another array of the store, else as Orbax writes it.

    The array is one chunk.
    """
    template = like or parse(_TEMPLATES[zarr])
    one_chunk = msgspec.structs.replace(
        template, shape=(), dtype="", chunk_shape=(), write_shape=()
    )
    return revised(one_chunk, shape, dtype)


_TEMPLATES: Final = {
    2: (
        b'{"chunks":[],"compressor":{"id":"zstd","level":1},"dimension_separator":".","dtype":"<f4",'
        b'"fill_value":null,"filters":null,"order":"C","shape":[],"zarr_format":2}'
    ),
    3: (
        b'{"chunk_grid":{"configuration":{"chunk_shape":[]},"name":"regular"},"chunk_key_encoding":'
        b'{"name":"default"},"codecs":[{"configuration":{"chunk_shape":[],"codecs":[{"configuration":'
        b'{"endian":"little"},"name":"bytes"},{"configuration":{"checksum":false,"level":3},"name":"zstd"}],'
        b'"index_codecs":[{"configuration":{"endian":"little"},"name":"bytes"},{"name":"crc32c"}]},'
        b'"name":"sharding_indexed"}],"data_type":"float32","fill_value":0.0,"node_type":"array","shape":[],'
        b'"zarr_format":3}'
    ),
}
