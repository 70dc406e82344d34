"""A damaged shape in an array's own document is found without a digest on record, as Orbax restores what it says."""

import json

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery


@pytest.fixture(scope="module", params=[2, 3], ids=["zarr2", "zarr3"])
def saved(request, tmp_path_factory):
    """A leaf of 6 chunks along one axis, and one of a single chunk, each in a folder of its own."""
    place = tmp_path_factory.mktemp("saved") / "ck"
    tree = {"w": jax.numpy.arange(48.0).reshape(24, 2), "b": jax.numpy.arange(6.0)}
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=False, use_zarr3=request.param == 3)
    save_args = jax.tree.map(lambda _: ocp.SaveArgs(chunk_byte_size=32), tree)
    ocp.Checkpointer(handler).save(place, ocp.args.PyTreeSave(tree, save_args=save_args))
    return place, ".zarray" if request.param == 2 else "zarr.json"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("size", [*range(1, 24), 25, 28, 56])
def test_every_other_size_of_an_axis_is_found(saved, size):
    place, name = saved
    file = place / "w" / name
    raw = file.read_bytes()
    document = json.loads(raw)
    assert document["shape"] == [24, 2]
    document["shape"] = [size, 2]
    file.write_text(json.dumps(document))
    try:
        (row,) = surgery.doctor(str(place), settled_seconds=0).places
        assert row.state == "damaged"
        assert row.whole_leaves is None or row.whole_leaves < row.leaves
    finally:
        file.write_bytes(raw)
    (row,) = surgery.doctor(str(place), settled_seconds=0).places
    assert row.state == "whole"
    assert surgery.verify(str(place)).agrees


def test_orbax_restores_what_the_document_says(saved, tmp_path):
    """The premise: it does not refuse."""
    place, name = saved
    file = place / "w" / name
    raw = file.read_bytes()
    file.write_text(json.dumps({**json.loads(raw), "shape": [8, 2]}))
    try:
        assert np.shape(ocp.PyTreeCheckpointer().restore(place)["w"]) == (8, 2)
    finally:
        file.write_bytes(raw)
