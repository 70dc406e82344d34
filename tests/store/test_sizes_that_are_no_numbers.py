"""Sizes in an array's document that are no whole numbers are refused, as TensorStore refuses them."""

import json

import numpy as np
import pytest
import tensorstore as ts

from surgery_cli.errors import CheckpointError
from surgery_cli.store.orbax.zarr import parse

DRIVERS = {2: ("zarr", ".zarray"), 3: ("zarr3", "zarr.json")}


def _chunks(document):
    grid = document.get("chunk_grid")
    return document if grid is None else grid["configuration"]


@pytest.mark.parametrize("zarr", [2, 3])
@pytest.mark.parametrize("where", ["shape", "chunks"])
@pytest.mark.parametrize("size", [True, False, 1.5, "1", None, [1], -1])
def test_a_size_that_is_no_number(tmp_path, zarr, where, size):
    driver, name = DRIVERS[zarr]
    spec = {"driver": driver, "kvstore": {"driver": "file", "path": str(tmp_path / "a")}}
    ts.open(spec, create=True, dtype=ts.float32, shape=[1]).result()[...] = np.ones(1, "f4")
    file = tmp_path / "a" / name
    document = json.loads(file.read_text())
    assert parse(file.read_bytes()).shape == (1,)
    if where == "shape":
        document["shape"] = [size]
    else:
        holder = _chunks(document)
        holder["chunks" if zarr == 2 else "chunk_shape"] = [size]
    file.write_text(json.dumps(document))

    with pytest.raises(ValueError, match=r"."):  # the premise
        ts.open(spec, open=True).result()
    with pytest.raises(CheckpointError):
        parse(file.read_bytes())
