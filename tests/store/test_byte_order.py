"""Which documents say that elements are stored with their highest byte first."""

import json

import pytest

from surgery_cli.store.orbax.zarr import parse

ZARR2 = {
    "zarr_format": 2,
    "shape": [4],
    "chunks": [2],
    "dtype": "<f4",
    "compressor": None,
    "fill_value": None,
    "filters": None,
    "order": "C",
}
ZARR3 = {
    "zarr_format": 3,
    "node_type": "array",
    "shape": [4],
    "data_type": "float32",
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}},
    "chunk_key_encoding": {"name": "default"},
    "fill_value": 0,
}


def in_order(order):
    return {"name": "bytes", "configuration": {"endian": order}}


def in_shards(elements, index):
    inside = {"chunk_shape": [1], "codecs": [in_order(elements)], "index_codecs": [in_order(index)]}
    return {"name": "sharding_indexed", "configuration": inside}


@pytest.mark.parametrize(
    ("document", "is_big"),
    [
        (ZARR2, False),
        (ZARR2 | {"dtype": ">f4"}, True),
        (ZARR2 | {"attributes": {"made of": ">f4", "size": "big"}}, False),
        (ZARR3 | {"codecs": [in_order("little")]}, False),
        (ZARR3 | {"codecs": [in_order("big")]}, True),
        (ZARR3 | {"codecs": [in_order("little")], "attributes": {"size": "big"}}, False),
        (ZARR3 | {"codecs": [in_order("little")], "dimension_names": ["big"]}, False),
        (ZARR3 | {"codecs": [in_shards("big", "little")]}, True),
        (ZARR3 | {"codecs": [in_shards("little", "big")]}, False),
    ],
)
def test_the_byte_order_is_that_of_the_elements(document, is_big):
    raw = json.dumps(document, separators=(",", ":")).encode()
    assert parse(raw).is_big_endian == is_big
