"""Array documents for arrays of another shape or dtype, in the way of one that is stored."""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec

from surgery_cli.store.orbax.zarr import ZARR2_DTYPES, ArrayDocument, parse
from surgery_cli.tree.dtypes import is_complex, is_integer, item_bytes

CHUNK_BYTES: Final = 32 << 20
"""Of arrays that come from formats without chunks; larger ones would have to be held whole to be written."""

_DTYPE_CODES: Final = {name: code for code, name in ZARR2_DTYPES.items()}


def encoded(fields: dict[str, Any]) -> bytes:
    """An array document as it is stored."""
    return msgspec.json.encode(fields)


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
        if len(shape) < 2:  # TensorStore knows no other order there
            fields["order"] = "C"
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
    zarr: int,
    shape: tuple[int, ...],
    dtype: str,
    like: ArrayDocument | None = None,
    grid: tuple[int, ...] | None = None,
    inner_grid: tuple[int, ...] | None = None,
) -> dict[str, Any]:
    """A document for a new array: compressed like another array of the store, else as Orbax writes it.

    The array is one chunk, unless ``grid`` says what is stored whole, and ``inner_grid`` what can be decoded alone.
    """
    template = like or parse(_TEMPLATES[zarr])
    one_chunk = msgspec.structs.replace(
        template, shape=(), dtype="", chunk_shape=(), write_shape=()
    )
    return revised(one_chunk, shape, dtype, grid, inner_grid)


def grid_within(shape: tuple[int, ...], dtype: str, most: int = CHUNK_BYTES) -> tuple[int, ...]:
    """The largest chunks of whole rows, all about as large, that take ``most`` bytes at most.

    >>> grid_within((1000, 64), "float32", 100_000), grid_within((3, 1000, 64), "float32", 100_000)
    ((334, 64), (1, 334, 64))
    """
    left = max(most // item_bytes(dtype), 1)
    grid = [max(size, 1) for size in shape]
    for axis, size in enumerate(grid):
        inside = math.prod(grid[axis + 1 :])
        if size * inside <= left:
            break
        count = -(-size // max(left // inside, 1))
        grid[axis] = -(-size // count)
    return tuple(grid)


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
