"""A search goes through the bytes of data files, and not through holes, which read as zeros and take no room."""

import os
import shutil

import pytest

from surgery_cli import surgery
from tests.salvage.test_undamaged import SAMPLE_CHECKPOINTS

HOLE = 1 << 40
MOST_SEARCHED = 64 << 20


@pytest.fixture
def broken(tmp_path):
    """Without a manifest, so that every leaf is found by searching."""
    place = shutil.copytree(SAMPLE_CHECKPOINTS / "digits_standard", tmp_path / "broken")
    for manifest in place.rglob("manifest.ocdbt"):
        manifest.unlink()
    return place


def _rescued(place):
    """What is found, and how many bytes were said to be searched, of how many."""
    events = []
    report = surgery.rescue(str(place), listener=events.append)
    told = [(one.done_bytes, one.total_bytes) for one in events if one.stage == "searching"]
    return {row.path: (row.state, row.digest) for row in report.leaves}, told


def test_a_hole_of_a_terabyte_takes_no_time(broken):
    before, told = _rescued(broken)
    data = sum(file.stat().st_size for file in broken.rglob("d/*"))
    assert told[-1] == (data, data)
    folder = next(broken.rglob("d"))
    (folder / "0123").touch()
    os.truncate(folder / "0123", HOLE)

    after, told = _rescued(broken)

    assert after == before
    assert told[-1][0] == told[-1][1] < MOST_SEARCHED


def test_what_stands_behind_a_hole_is_found(broken):
    """A tree of which the nodes stand in another file, behind a hole that ends where no block does."""
    before, _ = _rescued(broken)
    for file in broken.glob("d/*"):
        raw = file.read_bytes()
        file.write_bytes(b"")
        with file.open("r+b") as opened:
            opened.seek(HOLE + 12345)
            opened.write(raw)

    after, told = _rescued(broken)

    assert after == before
    assert told[-1][0] < MOST_SEARCHED
