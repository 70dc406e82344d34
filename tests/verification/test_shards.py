"""A shard of zarr3 that contradicts its index is found without a digest: its index is metadata among the data."""

import json

import google_crc32c
import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
import tensorstore as ts

from surgery_cli import surgery

VALUES = np.random.default_rng(0).standard_normal((96, 64)).astype(np.float32)
LARGE = np.random.default_rng(1).standard_normal((64, 96)).astype(np.float32)


@pytest.fixture(scope="module", params=[True, False], ids=["database", "leaf folders"])
def saved(request, tmp_path_factory):
    """A step with a shard of six chunks; and what reads and writes its stored values by key."""
    place = tmp_path_factory.mktemp("run") / "3"
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=request.param, use_zarr3=True)
    tree = {"kernel": jax.numpy.asarray(VALUES), "other": jax.numpy.asarray(LARGE), "step": 7}
    ocp.Checkpointer(handler).save(place, args=ocp.args.PyTreeSave(tree))
    driver = (
        {"driver": "ocdbt", "base": f"file://{place}/"} if request.param else f"file://{place}/"
    )
    for manifest in place.glob("ocdbt.process_*/manifest.ocdbt"):
        manifest.unlink()  # it would lead to the values as they were saved
    values = ts.KvStore.open(driver).result()
    document = json.loads(values["kernel/zarr.json"])
    document["codecs"][0]["configuration"]["chunk_shape"] = [16, 64]
    values["kernel/zarr.json"] = json.dumps(document)
    where = {"driver": "zarr3", "kvstore": (values / "kernel/").spec().to_json()}
    ts.open(where).result()[...] = VALUES
    records = place / "array_metadatas" / "process_0"
    records.write_text(
        records.read_text().replace('"chunk_shape": [96, 64]', '"chunk_shape": [16, 64]')
    )
    return place, values


def said_of(place):
    verdict = surgery.verify(str(place))
    (row,) = surgery.doctor(str(place), settled_seconds=0).places
    assert verdict.agrees == (row.state == "whole")
    return [f"{one.path}: {one.detail}" for one in verdict.findings]


def test_undamaged_shards_are_no_finding(saved):
    assert said_of(saved[0]) == []


@pytest.mark.parametrize("change", ["removed", "added", "cut"])
def test_a_shard_that_contradicts_its_index_is_a_finding_of_verify_and_doctor(saved, change):
    place, values = saved
    key = "kernel/c/0/0"
    raw = values[key]
    try:
        for at in (60, 100, len(raw) // 2, len(raw) - 110):
            changed = {
                "removed": raw[:at] + raw[at + 4 :],
                "added": raw[:at] + b"abcd" + raw[at:],
                "cut": raw[:at],
            }
            values[key] = changed[change]
            said = said_of(place)
            assert any(
                one.startswith("kernel: ") and "'c/0/0' is damaged" in one for one in said
            ), at
            assert not any(one.startswith("other") for one in said)
    finally:
        values[key] = raw
    assert said_of(place) == []


def test_an_index_that_leads_to_places_of_others_is_a_finding(saved):
    """With a checksum of its own that is right: Orbax restores values of other places, and says nothing."""
    place, values = saved
    raw = values["kernel/c/0/0"]
    places = np.frombuffer(raw[-100:-4], "<u8").reshape(6, 2)
    index = places[[0, 0, 2, 3, 4, 5]].tobytes()
    values["kernel/c/0/0"] = raw[:-100] + index + google_crc32c.value(index).to_bytes(4, "little")
    try:
        restored = ocp.PyTreeCheckpointer().restore(place)["kernel"]
        assert not np.array_equal(restored, VALUES)
        assert any("for two chunks" in one for one in said_of(place))
    finally:
        values["kernel/c/0/0"] = raw
