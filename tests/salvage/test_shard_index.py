"""A shard says where each of its chunks lies: where bytes went or came before its index, the two disagree."""

import json

import google_crc32c
import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
import tensorstore as ts

from surgery_cli import surgery

SHAPE = (96, 64)
VALUES = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)


@pytest.fixture(scope="module", params=[1, 6], ids=["one chunk", "six chunks"])
def saved(request, tmp_path_factory):
    """A leaf in a folder of its own, in one shard of so many chunks; and how many of its bytes are no index."""
    place = tmp_path_factory.mktemp("saved") / "ck"
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=False, use_zarr3=True)
    tree = {"kernel": jax.numpy.asarray(VALUES), "step": 7}
    ocp.Checkpointer(handler).save(place, args=ocp.args.PyTreeSave(tree))
    document = json.loads((place / "kernel" / "zarr.json").read_text())
    document["codecs"][0]["configuration"]["chunk_shape"] = [SHAPE[0] // request.param, SHAPE[1]]
    kvstore = {"driver": "file", "path": f"{place}/kernel/"}
    (place / "kernel" / "zarr.json").write_text(json.dumps(document))
    ts.open({"driver": "zarr3", "kvstore": kvstore}).result()[...] = VALUES
    shard = place / "kernel" / "c" / "0" / "0"
    return shard, shard.stat().st_size - 16 * request.param - 4


def _kernel(shard):
    rows = surgery.rescue(str(next(p.parent for p in shard.parents if p.name == "kernel"))).leaves
    return next(row for row in rows if row.path == "kernel")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("change", ["removed", "added", "doubled"])
def test_a_shard_that_lost_or_gained_bytes_before_its_index_is_never_whole(saved, change):
    shard, data = saved
    raw = shard.read_bytes()
    assert _kernel(shard).state == "whole"
    rng = np.random.default_rng(1)
    try:
        for at in [4, data - 4, *rng.integers(4, data - 4, 30).tolist()]:
            rest = {"removed": raw[at + 4 :], "added": b"abcd" + raw[at:], "doubled": raw[at - 4 :]}
            shard.write_bytes(raw[:at] + rest[change])
            row = _kernel(shard)
            assert row.state != "whole", at
            assert "its index leads to" in row.why
    finally:
        shard.write_bytes(raw)


def test_ranges_of_two_chunks_that_overlap_are_seen(saved):
    """The index has a checksum, and here it is right: what wrote it was wrong."""
    shard, data = saved
    raw = shard.read_bytes()
    if len(raw) - data == 20:
        pytest.skip("there is one chunk")
    places = np.frombuffer(raw[data:-4], "<u8").copy()
    places[2:4] = places[0:2]
    index = places.tobytes()
    try:
        shard.write_bytes(raw[:data] + index + google_crc32c.value(index).to_bytes(4, "little"))
        row = _kernel(shard)
        assert row.state == "lost"
        assert "for two chunks" in row.why
    finally:
        shard.write_bytes(raw)


def test_a_digest_on_record_decides(saved, tmp_path):
    """Nothing that the index says counts against values that are those on record."""
    shard, data = saved
    raw = shard.read_bytes()
    place = next(p.parent for p in shard.parents if p.name == "kernel")
    surgery.seal(str(place))
    try:
        shard.write_bytes(raw[:data] + b"abcd" + raw[data:])
        row = _kernel(shard)
        assert (row.state, row.proof) == ("whole", "digest")
    finally:
        shard.write_bytes(raw)
        (place / "surgery.json").unlink()
