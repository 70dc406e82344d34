"""Dead bytes: reported, and gone from what `compact` writes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.planning import plan_of

SHAPE = (128, 256)  # 128 KiB of float32
LEAVES = "abcdefghijklmnop"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All leaves in one data file; Orbax spreads them over files as its threads happen to run."""
    folder = tmp_path_factory.mktemp("compact")
    path = folder / "saved"
    random = np.random.default_rng(0)
    params = {name: random.standard_normal(SHAPE, np.float32) for name in LEAVES}
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(path, {"params": params})
    surgery.apply(
        str(path), str(folder / "source"), plan_of([]), options=surgery.Options(compact="always")
    )
    return folder / "source"


def _surgery(*words: object) -> Any:
    command = [sys.executable, "-m", "surgery_cli", *map(str, words), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _data_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.glob("**/d/*"))


def _params(path: Path) -> dict[str, np.ndarray]:
    with ocp.PyTreeCheckpointer() as checkpointer:
        return checkpointer.restore(path)["params"]


def test_what_an_edit_leaves_behind_is_reported_and_removed(source: Path, tmp_path: Path) -> None:
    edited, small = tmp_path / "edited", tmp_path / "small"
    _surgery("rescale", source, edited, "params/a", "--by", 2)
    leaf = _data_bytes(edited) - _data_bytes(source)

    dead = _surgery("inspect", edited)["dead_bytes"]
    report = _surgery("compact", edited, small)

    assert dead == pytest.approx(leaf, rel=0.01)
    assert report["strategy"] == "compact"
    assert report["bytes_linked"] == 0
    assert _data_bytes(small) == pytest.approx(_data_bytes(source), rel=0.01)
    assert _surgery("inspect", small)["dead_bytes"] == 0
    before, after = _params(edited), _params(small)
    assert before.keys() == after.keys()
    for name, values in before.items():
        np.testing.assert_array_equal(after[name], values)


def test_what_was_deleted_is_no_longer_in_the_files(source: Path, tmp_path: Path) -> None:
    _surgery("delete", source, tmp_path / "cut", "params/b", "--compact", "never")

    _surgery("compact", tmp_path / "cut", tmp_path / "small")

    assert _data_bytes(tmp_path / "cut") == pytest.approx(_data_bytes(source), rel=0.01)
    assert _data_bytes(tmp_path / "small") == pytest.approx(_data_bytes(source) * 15 / 16, rel=0.01)


def test_a_dry_run_says_what_compacting_costs_and_writes_nothing(
    source: Path, tmp_path: Path
) -> None:
    preview = _surgery("compact", source, tmp_path / "small", "--dry-run")

    assert preview["strategy"] == "compact"
    assert preview["bytes_written"] == pytest.approx(_data_bytes(source), rel=0.01)
    assert not (tmp_path / "small").exists()


def test_a_leaf_from_a_donor_does_not_have_everything_rewritten(
    source: Path, tmp_path: Path
) -> None:
    donor = tmp_path / "donor"
    surgery.apply(str(source), str(donor), plan_of([]), options=surgery.Options(compact="always"))
    # most of the donor's data file is nothing to the new checkpoint
    words = ("replace", source, tmp_path / "grafted", "params/a", "--with", donor)

    report = _surgery(*words, "--optimizer", "keep")

    assert report["strategy"] == "copy-on-write"
    assert report["bytes_written"] == 0
    np.testing.assert_array_equal(_params(tmp_path / "grafted")["a"], _params(donor)["a"])
