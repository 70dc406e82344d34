"""Files damaged at random: nothing that is called whole on no condition has a wrong value, and no name is left out.

Bytes are removed, doubled, zeroed and put in at random places. `RESCUES=500` tries more.
"""

import os
import random
from pathlib import Path

import flax.serialization
import numpy as np
import pytest
import safetensors.numpy

from surgery_cli import surgery
from surgery_cli.errors import CheckpointError, SurgeryError

TRIES = int(os.environ.get("RESCUES", "40"))
NUMBERS = np.random.default_rng(3)
VALUES = {
    f"layer_{n}": NUMBERS.standard_normal((shape, 16)).astype(np.float32)
    for n, shape in enumerate((40, 3, 200, 1, 64))
}


def _damaged(raw, chance):
    """The bytes after one damage."""
    at, size = chance.randrange(len(raw)), chance.choice([1, 8, 100, 4096])
    way = chance.choice(["remove", "double", "zero", "put in"])
    if way == "remove":
        return raw[:at] + raw[at + size :]
    if way == "double":
        return raw[: at + size] + raw[at:]
    if way == "zero":
        return (raw[:at] + bytes(len(raw[at : at + size])) + raw[at + size :])[: len(raw)]
    return raw[:at] + chance.randbytes(size) + raw[at:]


def _rescued(broken):
    try:
        return {row.path: row for row in surgery.rescue(str(broken)).leaves}
    except SurgeryError:  # its begin is damaged, and it says so
        return {}


def _taken(broken, new, rows):
    """Paths of what is called whole on no condition; without leave, nothing else is written."""
    whole = {path for path, row in rows.items() if row.state == "whole"}
    if any(row.assumes or row.state != "whole" for row in rows.values()):
        with pytest.raises(CheckpointError):
            surgery.rescue(str(broken), str(new))
    if whole:
        surgery.rescue(str(broken), str(new), allow_partial=True)
    return {path for path in whole if not rows[path].assumes}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(TRIES))
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_of_npz_every_name_is_recovered_or_named_lost(save, seed, tmp_path):
    broken, new = tmp_path / "broken.npz", tmp_path / "new.npz"
    save(broken, **VALUES)
    raw = broken.read_bytes()
    broken.write_bytes(_damaged(raw, random.Random(seed)))

    rows = _rescued(broken)
    taken = _taken(broken, new, rows)

    assert rows.keys() >= VALUES.keys()
    assert len(taken & VALUES.keys()) >= len(VALUES) - 3
    with np.load(new) as found:
        assert all(np.array_equal(found[name], VALUES[name]) for name in taken)


@pytest.mark.parametrize("seed", range(TRIES))
def test_of_safetensors_of_another_size_nothing_is_whole_on_no_condition(seed, tmp_path):
    broken, new = tmp_path / "broken.safetensors", tmp_path / "new.safetensors"
    safetensors.numpy.save_file(VALUES, broken)
    raw = broken.read_bytes()
    broken.write_bytes(_damaged(raw, random.Random(seed)))

    rows = _rescued(broken)
    taken = _taken(broken, new, rows)

    if len(broken.read_bytes()) != len(raw):
        assert not taken
    if rows:
        assert rows.keys() >= VALUES.keys()


@pytest.mark.parametrize("seed", range(TRIES))
def test_of_msgpack_that_was_displaced_nothing_wrong_is_whole_on_no_condition(seed, tmp_path):
    broken, new = tmp_path / "broken.msgpack", tmp_path / "new.msgpack"
    tree = {"params": VALUES, "step": 3, "opt": {"mu": VALUES, "count": np.int32(7)}}
    raw = flax.serialization.to_bytes(tree)
    damaged = _damaged(raw, random.Random(seed))
    broken.write_bytes(damaged)

    rows = _rescued(broken)
    taken = _taken(broken, new, rows)

    if len(damaged) != len(raw):
        assert not taken
    for path in taken:  # of the same size: what no zeros stand in
        name = path.rpartition("/")[2]
        if name in VALUES and damaged.count(VALUES[name].tobytes()) == 2:
            tree = flax.serialization.msgpack_restore(new.read_bytes())
            where = tree["params"] if path.startswith("params") else tree["opt"]["mu"]
            assert np.array_equal(where[name], VALUES[name])


def test_of_names_that_differ_none_is_taken(tmp_path):
    broken = tmp_path / "broken.npz"
    np.savez(broken, **VALUES)
    raw = broken.read_bytes()
    broken.write_bytes(raw.replace(b"layer_1", b"layer_9", 1))

    rows = surgery.rescue(str(broken)).leaves

    lost = {row.path: row.why for row in rows if row.state == "lost"}
    assert lost.keys() == {"layer_1", "layer_9"}
    assert "calls it 'layer_9.npy'" in lost["layer_1"]


def test_a_digest_on_record_proves_a_leaf_in_a_file_of_another_size(tmp_path):
    broken = tmp_path / "broken.safetensors"
    safetensors.numpy.save_file(VALUES, broken)
    surgery.seal(str(broken))
    broken.write_bytes(broken.read_bytes() + b"more")

    rows = surgery.rescue(str(broken)).leaves

    assert {(row.state, row.proof, row.assumes) for row in rows} == {("whole", "digest", "")}


def test_what_is_assumed_is_on_record(tmp_path):
    broken, new = tmp_path / "broken.safetensors", tmp_path / "new.safetensors"
    safetensors.numpy.save_file(VALUES, broken)
    broken.write_bytes(broken.read_bytes() + b"more")

    done = surgery.rescue(str(broken), str(new), allow_partial=True)

    said = Path(done.record).read_text().count("bytes were added at its end alone")
    assert said == len(VALUES)


@pytest.mark.parametrize("removed", range(1, 40))
def test_what_to_bytes_never_writes_is_found_by_verify(removed, tmp_path):
    place = tmp_path / "checkpoint_1"
    raw = flax.serialization.to_bytes({"params": VALUES, "step": 3})
    at = raw.index(VALUES["layer_0"].tobytes()) + 50
    place.write_bytes(raw[:at] + raw[at + removed :])
    try:
        found = surgery.verify(str(place))
    except SurgeryError:
        return
    assert not found.agrees
