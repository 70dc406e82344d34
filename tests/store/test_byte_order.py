"""Which documents say that elements are stored with their highest byte first, or in another order than C."""

import json

import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
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


def transposed(order):
    return {"name": "transpose", "configuration": {"order": order}}


def of_two_axes(document, chunk=2):
    grid = {"name": "regular", "configuration": {"chunk_shape": [chunk, 2]}}
    return (
        document
        | {"shape": [4, 4]}
        | ({"chunks": [chunk, 2]} if "chunks" in document else {"chunk_grid": grid})
    )


@pytest.mark.parametrize(
    ("document", "is_transposed"),
    [
        (of_two_axes(ZARR2), False),
        (of_two_axes(ZARR2) | {"order": "F"}, True),
        (of_two_axes(ZARR2, chunk=1) | {"order": "F"}, False),
        (ZARR2 | {"order": "F"}, False),
        (of_two_axes(ZARR2) | {"attributes": {"order": "F", "transpose": "F"}}, False),
        (of_two_axes(ZARR3) | {"codecs": [in_order("little")]}, False),
        (of_two_axes(ZARR3) | {"codecs": [transposed([0, 1]), in_order("little")]}, False),
        (of_two_axes(ZARR3) | {"codecs": [transposed([1, 0]), in_order("little")]}, True),
        (of_two_axes(ZARR3) | {"codecs": [transposed("F"), in_order("little")]}, True),
        (
            of_two_axes(ZARR3)
            | {
                "codecs": [
                    {
                        "name": "sharding_indexed",
                        "configuration": {
                            "chunk_shape": [2, 2],
                            "codecs": [transposed([1, 0]), in_order("little")],
                            "index_codecs": [in_order("little")],
                        },
                    }
                ]
            },
            True,
        ),
    ],
)
def test_the_order_of_elements_is_c_or_another(document, is_transposed):
    assert parse(json.dumps(document).encode()).is_transposed == is_transposed


@pytest.mark.parametrize("zarr", [2, 3])
def test_arrays_that_orbax_reads_transposed_are_found(tmp_path, zarr):
    """Orbax writes C order alone, of transposed arrays, too, and reads what the document says."""
    values = np.arange(36, dtype=np.float32).reshape(6, 6)
    place, made = tmp_path / "3", ocp.PyTreeCheckpointer(use_ocdbt=False, use_zarr3=zarr == 3)
    made.save(place, {"w": np.asfortranarray(values), "v": jnp.asarray(values).T})
    for name in "wv":
        document = (place / name / (".zarray" if zarr == 2 else "zarr.json")).read_bytes()
        assert not parse(document).is_transposed
    assert surgery.verify(str(place)).agrees
    file = place / "w" / (".zarray" if zarr == 2 else "zarr.json")
    document = json.loads(file.read_text())
    if zarr == 2:
        document["order"] = "F"
    else:
        (shards,) = document["codecs"]
        shards["configuration"]["codecs"].insert(0, transposed([1, 0]))
    file.write_text(json.dumps(document))
    assert np.array_equal(made.restore(place)["w"], values.T)
    assert not surgery.verify(str(place)).agrees
    (row,) = surgery.doctor(str(place), settled_seconds=0).places
    assert row.state == "damaged"
