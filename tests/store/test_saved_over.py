"""What is saved over a result leaves the record beside it: neither is the one taken for the other, nor for damage."""

from __future__ import annotations

import numpy as np
import pytest

from surgery_cli import surgery
from surgery_cli.errors import CheckpointError
from surgery_cli.store.open.checkpoint import open_checkpoint
from tests.store.saving_over import EXPORTS, FILES, OTHER, made, state


@pytest.mark.parametrize("is_sealed", [False, True], ids=["edited", "sealed"])
@pytest.mark.parametrize("size", ["of the same size", "larger"])
@pytest.mark.parametrize("form", FILES)
def test_a_stale_record_makes_nothing_damaged_and_no_rescue_replaces_what_is_there(
    form, size, is_sealed, tmp_path
):
    """Values of the older step took the place of the new ones, as `doctor` had advised."""
    source, result, save = made(form, tmp_path / "run", is_sealed=is_sealed)
    now = state(2) | ({"more": np.ones(3, np.float32)} if size == "larger" else {})
    save(result, now)
    for read_data in () if form in EXPORTS else (False, True):  # of runs
        found = surgery.doctor(str(result.parent), settled_seconds=0, read_data=read_data)
        assert not {"damaged", "unsettled"} & {row.state for row in found.places}
        assert "rescue" not in "".join(row.todo for row in found.places)
        if read_data:
            assert [row.state for row in found.places if row.state != "whole"] == ["changed"]
            assert found.exit_code == 1
    new = tmp_path / result.name
    options = {"fill_from": str(source), "allow_partial": True}
    report = surgery.rescue(str(result), str(new), **options)
    assert not any(row.filled_from for row in report.leaves)
    rescued = open_checkpoint(str(new))
    for path in rescued.tree:
        np.testing.assert_array_equal(np.asarray(rescued.read(path)), now[str(path)])
    (entry,) = surgery.log(str(new)).entries
    assert entry.kind == "rescue"


def test_a_rescue_that_goes_by_one_of_both_says_so(tmp_path):
    source, result, save = made("flax", tmp_path / "run")
    save(result, state(2))
    with pytest.raises(CheckpointError, match="if something else was saved there after its record"):
        surgery.rescue(str(result), str(tmp_path / "new"), fill_from=str(source))


@pytest.mark.parametrize("is_sealed", [False, True], ids=["edited", "sealed"])
@pytest.mark.parametrize("form", ["flax", "safetensors"])
def test_a_flipped_bit_is_found_in_its_leaf_and_can_be_sealed_anew(form, is_sealed, tmp_path):
    """No leaf was looked at, the file was said to be another, and to remove the record was the advice."""
    _, result, _ = made(form, tmp_path / "run", is_sealed=is_sealed)
    raw = bytearray(result.read_bytes())
    raw[raw.index((state(1)["head"] * np.float32(0.3)).tobytes()) + 40] ^= 1
    result.write_bytes(bytes(raw))
    verdict = surgery.verify(str(result))
    assert {(one.path, one.what) for one in verdict.findings} >= {("head", "values")}
    assert verdict.checked == (3 if is_sealed or form in EXPORTS else 1)
    (note,) = (str(one) for one in verdict.notes if "saved over" in str(one))
    assert "damaged since, or something else was saved over it" in note
    with pytest.raises(CheckpointError):
        surgery.seal(str(result))
    surgery.seal(str(result), anew=True)
    assert surgery.verify(str(result)).agrees
    assert surgery.log(str(result)).entries[0].kind == "seal anew"
    surgery.apply(str(result), str(tmp_path / "new"), OTHER)


def test_what_lies_beyond_the_samples_of_a_sealed_file_is_found(tmp_path):
    _, result, save = made("flax", tmp_path / "run", is_sealed=True)
    save(result, state(2))
    found = {(one.path, one.what) for one in surgery.verify(str(result)).findings}
    assert found == {("head", "values"), (".", "file changed")}
