"""Files that break off: msgpack, safetensors, npz; Flax, safetensors and NumPy read what is rescued."""

import contextlib
import random

import flax.serialization
import numpy as np
import pytest
import safetensors.numpy

from surgery_cli import surgery
from surgery_cli.errors import CheckpointError, PlanError, SurgeryError

VALUES = {
    name: np.random.default_rng(n).standard_normal((40, 8)).astype(np.float32)
    for n, name in enumerate("abcdef")
}


def _written(place, values=VALUES):
    match place.suffix:
        case ".safetensors":
            safetensors.numpy.save_file(values, place)
        case ".npz":
            np.savez(place, **values)
        case _:
            place.write_bytes(flax.serialization.to_bytes(_state(values)))
    return place


def _state(values):
    return {"params": values, "step": 3, "opt": (np.ones(2), {"n": 7})}


def _read(place):
    match place.suffix:
        case ".safetensors":
            return safetensors.numpy.load_file(place)
        case ".npz":
            return dict(np.load(place))
        case _:
            tree = flax.serialization.msgpack_restore(place.read_bytes())
            return dict(tree["params"])


SUFFIXES = [".safetensors", ".npz", ".msgpack"]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("share", [0.3, 0.5, 0.99])
def test_leaves_before_the_break_come_back(suffix, share, tmp_path):
    broken, new = _written(tmp_path / f"broken{suffix}"), tmp_path / f"new{suffix}"
    raw = broken.read_bytes()
    broken.write_bytes(raw[: int(len(raw) * share)])

    found = surgery.rescue(str(broken))
    surgery.rescue(str(broken), str(new), allow_partial=True)

    whole = {row.path.removeprefix("params/") for row in found.leaves if row.state == "whole"}
    there = {name for name, v in VALUES.items() if v.tobytes() in broken.read_bytes()}
    assert whole == there
    assert len(there) in range(1, 7)
    if there != set(VALUES):
        lost = [row for row in found.leaves if row.state == "lost"]
        assert lost
        if suffix == ".safetensors":  # its header names all
            assert {row.path for row in lost} == VALUES.keys() - there
    values = _read(new)
    assert values.keys() == there
    assert all(np.array_equal(values[name], VALUES[name]) for name in there)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_without_leave_nothing_is_written_and_what_is_no_such_file_fills_none(suffix, tmp_path):
    broken = _written(tmp_path / f"broken{suffix}")
    raw = broken.read_bytes()
    broken.write_bytes(raw[: len(raw) // 2])
    with pytest.raises(CheckpointError, match="whole, and"):
        surgery.rescue(str(broken), str(tmp_path / f"new{suffix}"))
    with pytest.raises(PlanError, match="is one file"):
        surgery.rescue(str(broken), str(tmp_path / f"new{suffix}"), like=str(broken))
    other = _written(tmp_path / f"other{SUFFIXES[SUFFIXES.index(suffix) - 1]}")
    with pytest.raises(PlanError, match="cannot fill"):
        surgery.rescue(str(broken), str(tmp_path / f"new{suffix}"), fill_from=str(other))
    with pytest.raises(CheckpointError, match="would find"):
        surgery.inspect(str(broken))


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("share", [0.2, 0.4, 0.7, 0.99])
def test_an_older_file_fills_what_is_lost_and_says_of_what(suffix, share, tmp_path):
    broken, new = _written(tmp_path / f"broken{suffix}"), tmp_path / f"new{suffix}"
    raw = broken.read_bytes()
    broken.write_bytes(raw[: int(len(raw) * share)])
    there = {name for name, v in VALUES.items() if v.tobytes() in broken.read_bytes()}
    older = {name: values + 1 for name, values in VALUES.items()}
    other = _written(tmp_path / f"older{suffix}", older)

    if suffix != ".npz" and there:  # nothing shows that bytes are missing at the end alone
        with pytest.raises(CheckpointError, match="may hold other values"):
            surgery.rescue(str(broken), str(new), fill_from=str(other))
    found = surgery.rescue(str(broken), str(new), fill_from=str(other), allow_partial=True)

    values = _read(new)
    assert list(values) == list(_read(other))
    for name in VALUES:
        assert np.array_equal(values[name], (VALUES if name in there else older)[name])
    filled = {row.path.removeprefix("params/") for row in found.leaves if row.filled_from}
    assert filled.intersection(VALUES) == VALUES.keys() - there
    if suffix == ".msgpack":
        target = {"params": VALUES, "step": 0, "opt": (np.zeros(2), {"n": 0})}
        restored = flax.serialization.from_bytes(target, new.read_bytes())
        assert restored["step"] == 3
        assert restored["opt"][1]["n"] == 7


def test_an_older_file_with_another_shape_is_refused(tmp_path):
    broken = _written(tmp_path / "broken.safetensors")
    broken.write_bytes(broken.read_bytes()[:-10])
    other = _written(tmp_path / "older.safetensors", {**VALUES, "f": np.zeros(3, np.float32)})
    with pytest.raises(PlanError, match="does not fit"):
        surgery.rescue(str(broken), str(tmp_path / "new.safetensors"), fill_from=str(other))


def test_a_member_without_its_checksum_is_lost(tmp_path):
    broken = _written(tmp_path / "broken.npz")
    raw = bytearray(broken.read_bytes())
    raw[raw.find(VALUES["c"].tobytes()) + 5] ^= 1
    broken.write_bytes(raw)

    rows = {row.path: row for row in surgery.rescue(str(broken)).leaves}

    assert {name for name, row in rows.items() if row.state == "lost"} == {"c"}
    assert {row.proof for name, row in rows.items() if name != "c"} == {"checksum"}


def test_a_whole_file_is_whole(tmp_path):
    for suffix in SUFFIXES:
        assert surgery.rescue(str(_written(tmp_path / f"whole{suffix}"))).is_whole


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_whatever_a_damaged_file_declares_is_refused_or_lost(suffix, tmp_path):
    raw = _written(tmp_path / f"whole{suffix}").read_bytes()
    broken = tmp_path / f"broken{suffix}"
    for seed in range(25):
        chance, bytes_ = random.Random(seed), bytearray(raw)
        for _ in range(chance.randint(1, 3)):
            bytes_[chance.randrange(chance.choice([60, len(raw)]))] = chance.randrange(256)
        broken.write_bytes(bytes_[: chance.randint(len(raw) // 2, len(raw))])
        with contextlib.suppress(SurgeryError):
            surgery.rescue(str(broken))


def test_an_entry_whose_header_says_that_it_ends_nowhere_comes_back_by_the_directory(tmp_path):
    broken = _written(tmp_path / "broken.npz")
    raw = bytearray(broken.read_bytes())
    raw[30 + 5 + 4 + 8 : 30 + 5 + 4 + 16] = b"\xff" * 8  # how many bytes of it are stored
    broken.write_bytes(raw)

    found = surgery.rescue(str(broken))
    assert {row.path: row.proof for row in found.leaves} == dict.fromkeys(VALUES, "checksum")
