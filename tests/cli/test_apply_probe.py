"""`--probe` before a commit: the source and the result through the user's model, on one batch."""

import json
from pathlib import Path

import pytest

SAMPLES = Path(__file__).parents[2] / "sample_checkpoints"
SOURCE = str(SAMPLES / "digits_standard")
PROBE = ("--probe", f"{SAMPLES / 'digits.py'}:CNN", "--input", "float32[4,8,8,1]")


@pytest.fixture
def rescale(surgery, tmp_path):
    """Rescale the last kernel under a probe; the result of the command and the folder of the destination."""

    def call(by, *words, at="params/Dense_1/kernel"):
        folder = tmp_path / "out"
        folder.mkdir()
        return surgery(
            "rescale", SOURCE, str(folder / "new"), at, "--by", by, *PROBE, *words
        ), folder

    return call


def test_a_harmless_edit_is_committed_and_says_what_the_probe_saw(rescale):
    result, folder = rescale("0.5", "--json")

    assert result.code == 0, result.err
    (note,) = [n for n in result.document["notes"] if n.startswith("probe of ")]
    assert "no new NaN or infinity, and the outputs differ: " in note
    assert json.loads((folder / "new" / "surgery.json").read_text())["verified"]["probe"] == note


def test_finite_values_that_overflow_in_the_model_stop_the_commit(rescale):
    # 1e38 times a kernel whose values are below 1 is finite in float32; its sums are not
    result, folder = rescale("1e38", at="params/Dense_0/kernel")

    assert result.code == 1
    assert "the model makes NaN or infinities from the result" in result.err
    assert "'Dense_0'" in result.err
    assert list(folder.iterdir()) == []


def test_a_difference_above_the_tolerance_stops_the_commit(rescale):
    result, folder = rescale("1.01", "--tolerance", "1e-5")

    assert result.code == 1
    assert "the result does not compute what the source computes" in result.err
    assert "'Dense_1'" in result.err
    assert list(folder.iterdir()) == []


def test_equal_outputs_pass_the_tolerance(rescale):
    result, folder = rescale("1.0", "--tolerance", "1e-5", "--json")

    assert result.code == 0, result.err
    assert [p.name for p in folder.iterdir()] == ["new"]
    assert any("the outputs are equal, bit for bit" in note for note in result.document["notes"])


def test_a_dry_run_says_that_the_probe_is_still_to_come(rescale):
    result, folder = rescale("1e38", "--dry-run", "--json", at="params/Dense_0/kernel")

    assert result.code == 0
    assert result.document["notes"][-1].endswith(
        "digits.py:CNN runs on the result, once that is written"
    )
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(("option", "value"), [("--input", "float32[4]"), ("--tolerance", "1e-5")])
def test_what_belongs_to_a_probe_needs_one(surgery, tmp_path, option, value):
    result = surgery(
        "rescale", SOURCE, str(tmp_path / "new"), "params/*/kernel", "--by", "2", option, value
    )

    assert result.code == 2
    assert f"`{option}` says something only together with `--probe`" in result.err
    assert not (tmp_path / "new").exists()


def test_a_model_that_does_not_fit_the_source_is_refused_before_anything_is_written(
    surgery, tmp_path
):
    words = ("--probe", f"{SAMPLES / 'digits.py'}:CNN", "--input", "float32[4,16,16,1]")
    result = surgery(
        "rescale", SOURCE, str(tmp_path / "new"), "params/*/kernel", "--by", "2", *words
    )

    assert result.code in (1, 2)
    assert "Dense_0" in result.err
    assert list(tmp_path.iterdir()) == []
