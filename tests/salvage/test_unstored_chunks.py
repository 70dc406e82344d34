"""Chunks of zeros that older releases of Orbax left out are zeros where all else is whole, and lost where it is not."""

import json
import shutil

import pytest

from surgery_cli import surgery
from surgery_cli.store.open.checkpoint import open_checkpoint
from tests.fixture_truths import FIXTURES, is_true, truth_key, truths
from tests.salvage.test_undamaged import UNSTORED_ZEROS, assert_restored_alike

pytestmark = pytest.mark.parametrize("name", UNSTORED_ZEROS)


@pytest.fixture
def place(name, tmp_path):
    return shutil.copytree(FIXTURES / name, tmp_path / "saved")


def _rows(place, **said):
    return {row.path: row for row in surgery.rescue(str(place), **said).leaves}


def _lost(place):
    return {path for path, row in _rows(place).items() if row.state != "whole"}


def test_they_are_whole_with_their_true_values_also_where_metadata_is_written_anew(
    name, place, tmp_path
):
    assert any("are read as zeros" in str(note) for note in surgery.rescue(str(place)).notes)
    metadata = json.loads((place / "_METADATA").read_text())
    metadata["use_ocdbt"] = False  # is not so: the result says what is
    (place / "_METADATA").write_text(json.dumps(metadata))

    surgery.rescue(str(place), str(tmp_path / "new"))

    assert not json.loads((tmp_path / "new" / "_METADATA").read_text())[
        "store_array_data_equal_to_fill_value"
    ]
    written, truth = open_checkpoint(str(tmp_path / "new")), truths(name)
    for path in written.tree:
        if truth_key(path) in truth:
            assert is_true(written.read(path), truth[truth_key(path)]), path
    assert_restored_alike(FIXTURES / name, tmp_path / "new")


def _say_all_were_stored(place):
    metadata = json.loads((place / "_METADATA").read_text())
    metadata["store_array_data_equal_to_fill_value"] = True
    (place / "_METADATA").write_text(json.dumps(metadata))


def _misspell(place):
    text = (place / "_METADATA").read_text()
    (place / "_METADATA").write_text(text.replace('"use_zarr3"', '"use_zarr2"'))


@pytest.mark.parametrize(
    "damage",
    [
        lambda place: (place / "manifest.ocdbt").unlink(),
        lambda place: (place / "_METADATA").unlink(),
        lambda place: (place / "_METADATA").write_bytes((place / "_METADATA").read_bytes()[:-9]),
        _say_all_were_stored,
        _misspell,
    ],
)
def test_where_anything_is_damaged_that_says_so_they_are_lost(place, name, damage):
    assert not _lost(place)
    damage(place)
    assert UNSTORED_ZEROS[name] & _lost(place)


def test_a_chunk_that_was_stored_and_is_gone_is_lost(place, name):
    files = [file for file in place.rglob("d/*") if file.is_file()]
    for file in files:
        raw = file.read_bytes()
        for cut in (0, len(raw) // 2, len(raw) - 1):
            file.write_bytes(raw[:cut])
            for path, row in _rows(place).items():
                if row.state == "whole" and path.replace("/", ".") in truths(name):
                    assert row.digest == _rows(FIXTURES / name)[path].digest, (file, path)
        file.write_bytes(raw)
